"""The time limits of tests, and of the examples that Hypothesis draws."""

from unittest.mock import Mock

import pytest

from spec_tests.failure import SUITE
from spec_tests.machine import time_limit
from spec_tests.machine.time_limit import Limits

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("seconds", "text_of_processor", "text", "after_an_example"),
    [
        (
            None,
            "an example has not ended in 60 s of processor time",
            "an example has not ended in 120 s",
            "",
        ),
        (200.0, "", "it has not ended in 200 s", "it has not ended in 200 s"),
    ],
)
def test_only_without_a_limit_of_the_test_each_example_has_limits(
    monkeypatch, seconds, text_of_processor, text, after_an_example
):
    clocks = Mock(**{"monotonic.return_value": 0.0, "process_time.return_value": 0.0})
    monkeypatch.setattr(time_limit, "time", clocks)
    limits = Limits(seconds)
    clocks.process_time.return_value = 61
    assert limits.reached() == text_of_processor
    clocks.monotonic.return_value = 201
    assert limits.reached() == text
    limits.start_example()
    assert limits.reached() == after_an_example


@pytest.mark.parametrize("stem", time_limit.SLOW)
def test_the_files_without_limits_of_examples_exist(stem):
    assert any(SUITE.glob(f"*/{stem}.py"))


@pytest.mark.parametrize("options", [[], ["--timeout=9"]])
def test_a_limit_of_the_user_replaces_those_of_examples(run_suite, options):
    expected = f"request.config.option.has_time_limit is {bool(options)}"
    body = f"@clause('a.one')\ndef test_one(request): assert {expected}"
    run_suite(body, "-k", "one", *options).assert_outcomes(passed=1)
