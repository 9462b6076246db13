"""Checks that a refused call raises an error with a given text and changes no input."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from spec_tests import checks
from spec_tests.checks.outcome import Call, Raised, observe, raised_by
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import cases, error_of
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


def refusals(
    calls_of: Mapping[str, Sequence[tuple[Call, Mapping[str, Any]]]],
) -> pytest.MarkDecorator:
    """Return a decorator that runs a test for each ``call``, with the ``error`` of its clause.

    Args:
        calls_of: For each id of a clause, its calls, each with the values of its error. See
            `error_of`.
    """
    return cases(
        "call, error",
        {
            name: [(call, error_of(name, **values)) for call, values in calls]
            for name, calls in calls_of.items()
        },
    )


def refused(call: Call, target: Target, topology: Topology, error: str) -> None:
    """Fail unless ``call`` raises ``error`` and does not change its inputs.

    Args:
        call: The call.
        target: The implementation under test.
        topology: The devices.
        error: The error: see `check_error`.
    """
    __tracebackhide__ = True
    outcome = observe(call, target, topology, gradients=False)
    check_error(outcome.result, error, topology, call)
    unchanged = call.inputs(topology)
    checks.same(outcome.inputs, snapshot(unchanged, unchanged), call, place="input")


def check_error(found: Any, error: str, topology: Topology, call: object = "") -> None:
    """Fail unless ``found`` is an error with the given class and text.

    Args:
        found: The error, or the result of an `Outcome`.
        error: Class and text: ``IndexError: list index out of range``. If the text has ``…``, the
            error contains the parts between them. ``{KIND}`` is replaced by the device type in
            capital letters.
        topology: The devices.
        call: The call, which the message shows.
    """
    __tracebackhide__ = True
    result = raised_by(found) if isinstance(found, BaseException) else found
    kind, _, text = error.replace("{KIND}", topology.accelerator.upper()).partition(": ")
    if "…" not in text or getattr(result, "class_name", "") != kind:
        checks.same(result, Raised(kind, text.strip("…")), call)
    else:
        checks.contains(result.text, text.split("…"), call)
