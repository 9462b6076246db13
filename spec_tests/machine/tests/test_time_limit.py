"""The time limits of tests, and of the examples that Hypothesis draws."""

from unittest.mock import Mock

import pytest

from spec_tests.failure import SUITE
from spec_tests.machine import time_limit
from spec_tests.machine.time_limit import Limits

pytest_plugins = ["pytester"]


def test_only_without_a_limit_of_the_test_each_example_has_limits(monkeypatch):
    clocks = Mock(**{"monotonic.return_value": 0.0, "process_time.return_value": 0.0})
    monkeypatch.setattr(time_limit, "time", clocks)
    of_examples, of_test = Limits(None), Limits(200.0)
    clocks.process_time.return_value = 61
    assert of_examples.reached() == "an example has not ended in 60 s of processor time"
    assert of_test.reached() == ""
    clocks.monotonic.return_value = 201
    assert of_examples.reached() == "an example has not ended in 120 s"
    of_examples.start_example({"count": 2})
    of_test.start_example({"count": 2})
    assert of_examples.reached() == ""
    assert of_test.reached() == "it has not ended in 200 s"


@pytest.mark.parametrize("stem", time_limit.SLOW)
def test_the_files_without_limits_of_examples_exist(stem):
    assert any(SUITE.glob(f"*/{stem}.py"))


@pytest.mark.parametrize("options", [[], ["--timeout=9"]])
def test_a_limit_of_the_user_replaces_those_of_examples(run_suite, options):
    expected = f"request.config.option.has_time_limit is {bool(options)}"
    body = f"@clause('a.one')\ndef test_one(request): assert {expected}"
    run_suite(body, "-k", "one", *options).assert_outcomes(passed=1)
