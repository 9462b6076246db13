"""The programs of docs/language_models.md run on CPU replicas and on simulated devices."""

import pytest

from impl_tests.consumers.processes import run_module


@pytest.mark.parametrize("devices", ['["cpu", "cpu"]', "[0, 1]"])
def test_programs_of_the_page_run(devices):
    assert run_module("impl_tests.consumers.language_models", devices) >= 6
