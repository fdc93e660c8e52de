"""What a {{kind}} needs and is told, as values."""

import unittest

from capstan import Metadata, Problem, Update

import app
from app import {{kind}}, Spec, Status


def primary(greeting: str) -> {{kind}}:
    return {{kind}}(Metadata("hello"), Spec("Ada", greeting))


class {{kind}}Test(unittest.TestCase):
    def test_the_config_map_has_the_greeting(self):
        wanted = app.configmap(primary("Hello, {name}!"))
        self.assertEqual((wanted["metadata"]["name"], wanted["data"]), ("hello", {"text": "Hello, Ada!"}))

    def test_the_status_says_the_same(self):
        self.assertEqual(app.publish(primary("Hello, {name}!")), Update(status=Status("Hello, Ada!")))

    def test_a_greeting_without_a_name_is_wrong(self):
        self.assertEqual(app.check(primary("Hello!")), Problem("{name} is missing", "spec.greeting"))
        self.assertIsNone(app.check(primary("Hello, {name}!")))


if __name__ == "__main__":
    unittest.main()
