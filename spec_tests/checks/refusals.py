"""Checks that a refused call raises an error with a given text and changes no input."""

from collections.abc import Sequence

from spec_tests import checks
from spec_tests.checks.outcome import Call, Raised, observe
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


def refused(
    call: Call,
    target: Target,
    topology: Topology,
    error: type[Exception],
    text: str | Sequence[str],
) -> None:
    """Fail unless ``call`` raises ``error`` with ``text`` and does not change its inputs.

    Args:
        call: The call.
        target: The implementation under test.
        topology: The devices.
        error: The class of the error.
        text: The text of the error, or a sequence of its parts. ``{KIND}`` is replaced by the
            device type in capital letters, ``{ordinals[0]}`` by the ordinal of the first device.
    """
    __tracebackhide__ = True
    outcome = observe(call, target, topology, gradients=False)
    result = outcome.result
    names = {"KIND": topology.accelerator.upper(), "ordinals": topology.ordinals}
    parts = [part.format(**names) for part in ([text] if isinstance(text, str) else text)]
    if isinstance(text, str) or getattr(result, "class_name", "") != error.__name__:
        checks.same(result, Raised(error.__name__, " … ".join(parts)), call)
    else:
        checks.contains(result.text, parts, call)
    unchanged = call.inputs(topology)
    checks.same(outcome.inputs, snapshot(unchanged, unchanged), call, place="input")
