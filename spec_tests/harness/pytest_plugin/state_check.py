"""Fails a test of a target that changes the state of the process or of its thread.

Most tests call the target directly. `outcome.observe` checks calls that are compared.
"""

import sys
from collections.abc import Generator

import pytest
import torch

from spec_tests.harness.compare import surroundings
from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.profiles import FORWARD
from spec_tests.harness.pytest_plugin import containment
from spec_tests.harness.pytest_plugin.hooks import topology_of


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test of a clause that changes the surroundings; contain its errors.

    The profile `FORWARD` runs the tests in no-grad mode.
    """
    if not clauses.clauses_of_test(pyfuncitem):
        return (yield)
    is_forward = pyfuncitem.config.getoption("--profile") == FORWARD
    with torch.set_grad_enabled(not is_forward):
        return (yield from _checked(pyfuncitem))


def _checked(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    topology = topology_of(pyfuncitem.config)
    before, modules = surroundings.read(topology), len(sys.modules)
    failure: BaseException | None = None
    changed: tuple[str, ...] = ()
    with containment.contained() as closed:
        try:
            result = yield
            changed = surroundings.changes(before, surroundings.read(topology))
        except BaseException as error:
            failure = containment.as_failure(error)
    if failure is not None:
        raise failure
    if len(sys.modules) > modules:  # An import may add filters.
        changed = tuple(name for name in changed if name != "warning filters")
    if changed := (*changed, *closed):
        pytest.fail(f"changed: {', '.join(changed)}", pytrace=False)
    return result
