"""What a refused call comes to: one error with a stated text, and nothing written."""

from collections.abc import Iterable

from spec_tests.harness import checks
from spec_tests.harness.outcome import Call, Failure, observe
from spec_tests.harness.portrait import portrait
from spec_tests.harness.target import Target
from spec_tests.harness.topology import Topology


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
    outcome = observe(call, target, topology, gradients=False)
    words = text.format(KIND=topology.accelerator.upper(), ordinals=topology.ordinals)
    checks.same(outcome.result, Failure(f"builtins.{error.__name__}", words), call)
    fresh = call.inputs(topology)
    checks.same(outcome.inputs, portrait(fresh, fresh), call)


def unsaid(error: BaseException, facts: Iterable[str]) -> list[str]:
    """The facts that the error's text does not hold."""
    return [fact for fact in facts if fact not in str(error)]
