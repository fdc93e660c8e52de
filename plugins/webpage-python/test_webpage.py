"""What a page needs and is told, as values."""

import re
import unittest
from pathlib import Path

import webpage

from capstan import Error, Failure, Handled, Retry, Update
from capstan.testing import Line, Run

GOOD = "<html><body>hello</body></html>"
PROBLEM = "spec.html needs <html> and </html>"
FAILURE = Failure("workflow", "configmap: it did not work", Retry())


def page(html=GOOD):
    return {
        "apiVersion": "sample.capstan.dev/v1",
        "kind": "WebPage",
        "metadata": {"name": "hello", "namespace": "web", "generation": 3},
        "spec": {"html": html, "exposed": True},
    }


class WebPage(unittest.TestCase):
    def test_a_good_page_is_told_so_from_the_page_alone(self):
        run = Run(page())
        status = {"areWeGood": True, "htmlConfigMap": "hello-html", "observedGeneration": 3}
        self.assertEqual(run.reconcile(), Update(status=status))
        self.assertEqual(run.logs, [Line("debug", "page is published", {"html_config_map": "hello-html"})])

    def test_bad_html_fails_the_config_map_and_ends_in_the_status(self):
        for html in ["hello", "<html>", "</html>", ""]:
            with self.subTest(html):
                with self.assertRaises(Error) as raised:
                    webpage.configmap(page(html))
                self.assertEqual(str(raised.exception), PROBLEM)
                status = {"areWeGood": False, "errorMessage": PROBLEM, "observedGeneration": 3}
                self.assertEqual(Run(page(html)).handle_error(FAILURE), Handled(status=status, stop=True))

    def test_a_failure_of_a_good_page_is_retried(self):
        self.assertIsNone(Run(page()).handle_error(FAILURE))

    def test_the_config_map_has_the_page(self):
        expected = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "hello-html", "labels": {"app": "hello"}},
            "data": {"index.html": GOOD},
        }
        self.assertEqual(webpage.configmap(page()), expected)

    def test_the_deployment_mounts_the_config_map(self):
        deployment = webpage.deployment(page())
        self.assertEqual(deployment["metadata"]["name"], "hello")
        pod = deployment["spec"]["template"]["spec"]
        self.assertEqual(pod["volumes"], [{"name": "html", "configMap": {"name": "hello-html"}}])
        self.assertEqual(pod["containers"][0]["volumeMounts"][0]["name"], "html")

    def test_deployment_and_service_select_the_same_pods(self):
        spec = webpage.deployment(page())["spec"]
        labels = {"app": "hello"}
        self.assertEqual(spec["selector"]["matchLabels"], labels)
        self.assertEqual(spec["template"]["metadata"]["labels"], labels)
        self.assertEqual(webpage.service(page())["spec"]["selector"], labels)

    def test_the_ingress_leads_to_the_service(self):
        service, ingress = webpage.service(page()), webpage.ingress(page())
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        self.assertEqual(backend["name"], service["metadata"]["name"])
        self.assertEqual(backend["port"]["number"], service["spec"]["ports"][0]["port"])

    def test_every_dependent_of_the_manifest_is_known_by_name(self):
        manifest = (Path(__file__).parent / "webpage-python.yaml").read_text()
        names = re.findall(r"^ {10}(\w+):$", manifest, re.MULTILINE)
        self.assertEqual(names, ["configmap", "deployment", "service", "ingress"])
        for name in names:
            self.assertIn("kind", Run(page()).desired(name))
        message = "this component has no desired state for `secret`; it has: configmap, deployment, service, ingress"
        with self.assertRaisesRegex(Error, message):
            Run(page()).desired("secret")


if __name__ == "__main__":
    unittest.main()
