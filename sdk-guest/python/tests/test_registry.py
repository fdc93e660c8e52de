"""What decorators note, and what is found by which name."""

from __future__ import annotations

import unittest
from datetime import timedelta

from support import PAGE, Registering

from capstan import (
    Deletion,
    Error,
    Handled,
    NextRetry,
    Things,
    Update,
    accepts,
    cleanup,
    condition,
    create_external,
    decide_retry,
    desired,
    desired_set,
    handle_error,
    initialize,
    validate,
    match,
    poll,
    poll_one,
    receive,
    reconcile,
    registry,
    remove_external,
    to_primaries,
    to_secondaries,
    update_external,
)
from capstan.answers import millis
from capstan.registry import Interface


class Answers(unittest.TestCase):
    def test_an_answer_that_contradicts_itself_is_refused_where_it_is_made(self) -> None:
        table = [
            (lambda: Handled(stop=True, retry_after=1), "Handled: stop, retry_after and reschedule exclude each other"),
            (lambda: Handled(stop=True, reschedule=0), "Handled: stop, retry_after and reschedule exclude each other"),
            (lambda: Handled(retry_after=1, reschedule=timedelta(1)), "Handled: stop, retry_after and reschedule exclude each other"),
            (lambda: NextRetry(after=1, stop=True), "NextRetry: after and stop exclude each other"),
        ]
        for make, text in table:
            with self.subTest(text), self.assertRaises(ValueError) as raised:
                make()
            self.assertEqual(str(raised.exception), text)

    def test_a_duration_is_a_time_from_zero_on(self) -> None:
        made = [
            lambda of: Update(reschedule=of),
            lambda of: Deletion(True, of),
            lambda of: Handled(reschedule=of),
            lambda of: Handled(retry_after=of),
            lambda of: NextRetry(of),
            lambda of: Things([], of),
        ]
        wrong = [-1, -0.5, timedelta(seconds=-1), float("nan"), float("inf"), -float("inf"), "5s", True]
        for make in made:
            for duration in wrong:
                with self.subTest(duration), self.assertRaises((TypeError, ValueError)) as raised:
                    make(duration)
                self.assertIn(f"{duration!r} is no duration; it is a timedelta, or a number of seconds, from 0 on", str(raised.exception))
            for duration in (0, 0.5, 1e300, 10**400, timedelta(days=100)):
                make(duration)
        self.assertEqual([millis(of) for of in (0, 0.5, 1e300, 10**400, timedelta(days=100))], [0, 500, 2**32 - 1, 2**32 - 1, 2**32 - 1])


class TheRegistry(Registering):
    def test_a_decorated_function_stays_as_it_is(self) -> None:
        def function(page):
            return {"kind": "Service"}

        for decorated in (desired(function), desired("a")(function), desired("a", controller="b")(function), desired()(function)):
            self.assertIs(decorated, function)

    def test_only_what_is_registered_is_exported(self) -> None:
        @reconcile
        def publish(page): ...

        @condition("ready")
        def ready(page): ...

        self.assertEqual(registry.interfaces(), [Interface.RECONCILER, Interface.CONDITION])

    def test_a_name_is_that_of_the_function_unless_it_is_given(self) -> None:
        @desired
        def config_map(page): ...

        @match("same-data")
        def compare(actual, wanted): ...

        self.assertEqual([entry.name for entry in registry.registered], ["config-map", "same-data"])

    def test_an_unknown_name_says_which_there_are(self) -> None:
        @desired
        def service(page): ...

        @desired("configmap", controller="other")
        def configmap(page): ...

        @reconcile(controller="other")
        def publish(page): ...

        table = [
            ((Interface.DEPENDENT, "test", "secret"), "this component has no desired state for `secret`; it has: service"),
            ((Interface.DEPENDENT, "other", "secret"), "this component has no desired state for `secret`; it has: service, configmap"),
            ((Interface.MATCHER, "test", "x"), "this component has no matcher `x`; it has: none"),
            ((Interface.RECONCILER, "test"), "this component has no reconciler for the controller `test`; it has: other"),
        ]
        for question, text in table:
            with self.subTest(question), self.assertRaises(Error) as raised:
                registry.get(*question)
            self.assertEqual(str(raised.exception), text)

    def test_a_controllers_own_function_comes_first(self) -> None:
        @desired("service")
        def for_all(page): ...

        @desired("service", controller="own")
        def for_own(page): ...

        found = [registry.get(Interface.DEPENDENT, controller, "service").function for controller in ("own", "other")]
        self.assertEqual(found, [for_own, for_all])

    def test_a_name_that_is_taken_twice_is_told_with_both_functions(self) -> None:
        @desired("service")
        def first(page): ...

        @desired("service")
        def second(page): ...

        @desired("service", controller="other")
        def third(page): ...

        [sentence] = registry.twice()
        self.assertRegex(sentence, r"two functions are the desired state for `service`: .*first and .*second")

    def test_a_function_takes_as_many_arguments_as_it_likes(self) -> None:
        seen = []

        @match
        def none():
            seen.append(())

        @match
        def two(actual, wanted, flag=None, *, named=None):
            seen.append((actual, wanted, flag))

        @match
        def all_of_them(*arguments):
            seen.append(arguments)

        for entry in registry.registered:
            entry("a", "b", PAGE)
        self.assertEqual(seen, [(), ("a", "b", PAGE), ("a", "b", PAGE)])

    def test_a_function_that_cannot_be_called_is_refused_at_once(self) -> None:
        def too_many(page, more): ...
        def named(page, *, more): ...
        async def later(page): ...
        def yields(page):
            yield page

        table = [
            (
                too_many,
                r"too_many\(page, more\) can't serve as reconciler, which is given \(primary\): missing a required argument: 'more'",
            ),
            (named, r"missing a required.* argument: 'more'"),
            (later, r"later is async or a generator; Capstan calls ordinary functions"),
            (yields, r"yields is async or a generator"),
        ]
        for function, text in table:
            with self.subTest(function), self.assertRaisesRegex(TypeError, text):
                reconcile(function)
        self.assertEqual(registry.registered, [])

    def test_all_decorators_take_a_controller(self) -> None:
        for decorator in (reconcile, cleanup, handle_error, decide_retry, validate, initialize, desired, desired_set, create_external, update_external, remove_external, match, condition, poll, poll_one, receive, accepts, to_primaries, to_secondaries):
            decorator(controller="a")(lambda: None)
        self.assertEqual({entry.controller for entry in registry.registered}, {"a"})


if __name__ == "__main__":
    unittest.main()
