"""Exceptions of all kinds, raised by any subset of the replicas at any place."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

from torch import Tensor

from spec_tests.harness.environment.target import Target

from .calls import Call, draw_call
from .contexts import WITHOUT_GRAD, call_in_contexts, draw_contexts
from .draws import MODULE_CALLS, draw_function, places_of
from .errors import ERRORS
from .injection import describe, inject
from .trigger import BACKWARD_PLACES, CONTAINER_PLACES, FORWARD_PLACES, Trigger
from .verdicts import Finding, are_equal, have_same_elements

__all__ = ["run_exception"]

# `CauseError` overrides these attributes by properties that raise an error, so read them with the
# descriptors of BaseException.
_CAUSE = vars(BaseException)["__cause__"].__get__
_CONTEXT = vars(BaseException)["__context__"].__get__
#: Functions that gather outputs. Containers of outputs that raise an error when they are rebuilt
#: become lists.
_GATHERING = ("gather", "DataParallel", "DataParallel.hold", "data_parallel")


def run_exception(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Raise exceptions in one call. Yield the verdict."""
    name = draw_function(target, rng)
    place = rng.choice(places_of(name))
    call, error, names = draw_call(target, name, rng), rng.choice([*ERRORS]), draw_contexts(rng)
    ordinals = call.ordinals
    if place in BACKWARD_PLACES:
        names = tuple(each for each in names if each not in WITHOUT_GRAD)
    count = rng.randint(1, len(ordinals)) if name in MODULE_CALLS else len(ordinals)
    chosen = rng.sample(ordinals, count)
    trigger = Trigger(place, ERRORS[error], chosen, rng.randrange(len(ordinals)))
    containers = place in CONTAINER_PLACES or rng.random() < 0.3
    call.add_trigger(trigger, rng, containers=containers)
    is_warm = rng.random() < 0.5
    print(f"{call}: {error} in {place} of {chosen}, in {names}", flush=True)

    def run_with_fault(expected: Sequence[Tensor]) -> Finding:
        finding = _run_armed(call, trigger, ordinals, expected, name in _GATHERING)
        trigger.raised.clear()
        return finding

    yield call_in_contexts(
        names, lambda: inject(call, run_with_fault, len(ordinals), is_warm=is_warm)
    )


def _run_armed(
    call: Call,
    trigger: Trigger,
    ordinals: Sequence[int],
    expected: Sequence[Tensor],
    is_gathering: bool,
) -> Finding:
    kind = f"exception in {trigger.place}"
    with trigger.arm():
        # Catch the error inside the block: contextlib would replace an error whose
        # `with_traceback` raises.
        try:
            found = call.compute()
        except BaseException as error:
            problem = _find_error_problem(error, call, trigger, ordinals)
            verdict = "other error" if problem else "error"
            return Finding(verdict, kind, problem or type(error).__name__)
    if not trigger.raised:
        verdict = "not reached" if are_equal(found, expected) else "wrong result"
    elif is_gathering and trigger.place in CONTAINER_PLACES:
        verdict = "right" if have_same_elements(found, expected) else "wrong result"
    else:
        verdict = "lost"
    return Finding(verdict, kind)


def _find_error_problem(
    error: BaseException, call: Call, trigger: Trigger, ordinals: Sequence[int]
) -> str | None:
    """Return why ``error`` does not report an injected exception; None if it does.

    ``error`` reports an exception if the exception is ``error`` itself, a cause or a context of
    ``error``, or if the text of ``error`` names the class of the exception. If replicas of
    ``parallel_apply`` raise an Exception in forward, the text must also name the first of them.
    """
    if not trigger.raised:
        return f"raised without a fault: {describe(error)}"
    raised = [each for _, each in trigger.raised]
    text = _all_text(error)
    if not any(each is other for each in _chain(error) for other in raised):
        names = [type(each).__name__ for each in raised]
        # The text is empty if `str(error)` raises. Then compare only the class of the error.
        is_unreadable = not text and type(error).__name__ in names
        if not is_unreadable and not any(f"Caught {name}" in text for name in names):
            return f"reports none of {names}: {describe(error)}"
    if trigger.place in FORWARD_PLACES and call.replicas and isinstance(raised[0], Exception):
        first = min(
            ordinals.index(ordinal) for ordinal, _ in trigger.raised if ordinal is not None
        )
        if f"in replica {first} on device" not in text:
            return f"does not name replica {first}: {describe(error)}"
    return None


def _all_text(error: BaseException) -> str:
    """Return the text of the exception and its notes, without parts that cannot be read."""
    parts = []
    with suppress(BaseException):
        parts.append(str(error))
    with suppress(Exception):
        parts += map(str, error.__notes__)
    return "\n".join(parts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, and its chain of causes and contexts."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = _CAUSE(current) or _CONTEXT(current)
