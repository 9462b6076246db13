"""`register.is_satisfied` compares the installed version of a distribution."""

from importlib import metadata

import pytest

from spec_tests.harness.conformance import register


@pytest.mark.parametrize(
    ("installed", "requirement", "expected"),
    [
        ("2.13.0", "torch>=2.11", True),
        ("2.13.0", "torch>=2.11,<2.13", False),
        ("2.13.0+cpu", "torch==2.13.0", True),
        ("2.16.0.dev20261120+cpu", "torch>=2.16", True),
        ("2.16.0.dev20261120+cpu", "torch>=2.11,<2.16", False),
        ("2.16.0rc1", "torch>=2.16", True),
        ("2.11.0a0+git0123456", "torch>=2.11", True),
    ],
)
def test_pre_releases_and_local_versions_count_as_their_release(
    monkeypatch, installed, requirement, expected
):
    monkeypatch.setattr(metadata, "version", {"torch": installed}.__getitem__)
    assert register.is_satisfied(requirement) is expected
