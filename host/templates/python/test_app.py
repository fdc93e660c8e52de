"""What a {{kind}} needs and is told, as values."""

import unittest

from capstan import Error, Object, Update

import app


def primary(greeting: str) -> Object:
    return {"metadata": {"name": "hello"}, "spec": {"greeting": greeting, "name": "Ada"}}


class {{kind}}Test(unittest.TestCase):
    def test_the_config_map_has_the_greeting(self):
        wanted = app.configmap(primary("Hello, {name}!"))
        self.assertEqual((wanted["metadata"]["name"], wanted["data"]), ("hello", {"text": "Hello, Ada!"}))

    def test_the_status_says_the_same(self):
        self.assertEqual(app.publish(primary("Hello, {name}!")), Update(status={"text": "Hello, Ada!"}))

    def test_a_greeting_without_a_name_is_refused_before_anything_is_written(self):
        with self.assertRaisesRegex(Error, "spec.greeting needs {name}"):
            app.configmap(primary("Hello!"))


if __name__ == "__main__":
    unittest.main()
