"""The race detector, tests of missing features, a fixture, and folders that are not collected."""

import sys
from collections.abc import Generator

import pytest

from spec_tests.machine import capabilities

#: Folders whose tests need packages that only ``tox -e consumers`` installs. Its commands pass the
#: folder to pytest by name, so that pytest collects it.
collect_ignore = ["consumers", "sweep"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test, so that the plugin of the simulator checks it for races."""
    item.add_marker("races")


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make wrappers find no devices, as on a machine without an accelerator."""
    # The attribute `data_parallel` of impl is the function.
    module = sys.modules["impl.data_parallel"]
    monkeypatch.setattr(module, "choose_devices", lambda *_: None)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line for each folder that is not collected."""
    folders = [f"impl_tests/{name}" for name in collect_ignore]
    left_out = [each for each in folders if not any(each in named for named in config.args)]
    return [f"not collected: {each} (run tox -e consumers)" for each in left_out]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a failed test that itself uses a feature which the devices lack."""
    report = yield
    capabilities.skip_missing(call, report, "impl", "impl_tests")
    return report
