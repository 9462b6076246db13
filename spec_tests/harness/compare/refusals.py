"""What a refused call comes to: one error with a stated text, and nothing written."""

from collections.abc import Iterable
from typing import Any

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import Call, Failure, observe
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


def refused(
    call: Call, target: Target, topology: Topology, error: type[Exception], text: str
) -> None:
    """Fail unless ``call`` raises ``error`` with ``text`` and leaves its inputs as they were.

    Args:
        call: The call.
        target: The implementation under test.
        topology: The devices.
        error: The class of the error.
        text: Its text; ``{KIND}`` stands for the accelerator, ``{ordinals[0]}`` for an ordinal.
    """
    __tracebackhide__ = True
    result = _refusal(call, target, topology)
    words = _filled_in(text, topology)
    checks.same(result, Failure(f"builtins.{error.__name__}", words), call)


def refused_telling(
    call: Call,
    target: Target,
    topology: Topology,
    error: type[Exception],
    facts: Iterable[str],
) -> None:
    """Like :func:`refused`, but the text may be any that holds all of ``facts``."""
    __tracebackhide__ = True
    result = _refusal(call, target, topology)
    checks.same(getattr(result, "kind", None), f"builtins.{error.__name__}", call)
    missing = unsaid(result.text, [_filled_in(fact, topology) for fact in facts])
    checks.same(missing, [], call)


def _refusal(call: Call, target: Target, topology: Topology) -> Any:
    """What came of ``call``, which must have written nothing."""
    __tracebackhide__ = True
    outcome = observe(call, target, topology, gradients=False)
    fresh = call.inputs(topology)
    checks.same(outcome.inputs, snapshot(fresh, fresh), call)
    return outcome.result


def _filled_in(text: str, topology: Topology) -> str:
    return text.format(KIND=topology.accelerator.upper(), ordinals=topology.ordinals)


def unsaid(error: object, facts: Iterable[str]) -> list[str]:
    """The facts that the text, or the text of the error, does not hold."""
    return [fact for fact in facts if fact not in str(error)]
