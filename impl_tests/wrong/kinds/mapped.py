"""Wrong implementations of DataParallel.map, written by hand."""

import itertools
from collections.abc import Generator, Iterator
from typing import Any

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()
#: The generators that a kind leaves open.
_LEFT_OPEN: list[Iterator[Any]] = []


@KINDS.around
def lists_as_one_argument(call: Call) -> Any:
    """Take a list for the only argument of its call."""
    batches = call.arguments["batches"]
    wrapped = ((batch,) if isinstance(batch, list) else batch for batch in batches)
    return call.with_arguments(batches=wrapped).run()


@KINDS.around
def batches_in_groups(call: Call) -> Any:
    """Begin a batch for each device when all batches before have ended, if the limit allows."""
    count = len(call.arguments["self"].device_ids)
    if not 1 < count < (call.arguments.get("in_flight") or 0):
        return call.run()
    batches = iter(call.arguments["batches"])

    def run() -> Generator[Any]:
        while group := [*itertools.islice(batches, count)]:
            yield from [*call.with_arguments(batches=group).run()]

    return run()


@KINDS.around
def batches_read_ahead(call: Call) -> Any:
    """Take each batch one batch earlier."""
    return call.with_arguments(batches=_read_ahead(iter(call.arguments["batches"]))).run()


def _read_ahead(batches: Iterator[Any]) -> Generator[Any]:
    for (batch, error), _ in itertools.pairwise(itertools.chain(_read(batches), [None])):
        if error is not None:
            raise error
        yield batch


def _read(batches: Iterator[Any]) -> Generator[Any]:
    """Yield each batch with None, or None with the exception of the iterator."""
    try:
        for batch in batches:
            yield batch, None
    except Exception as error:
        yield None, error


@KINDS.around
def iterator_errors_dropped(call: Call) -> Any:
    """End without an error if the iterator of the batches raises one."""
    batches = iter(call.arguments["batches"])

    def read() -> Generator[Any]:
        try:
            yield from batches
        except Exception:
            return

    return call.with_arguments(batches=read()).run()


@KINDS.around
def generators_left_open(call: Call) -> Any:
    """Return a generator that does not close the one of the call."""
    outputs = call.run()
    _LEFT_OPEN.append(outputs)
    return (output for output in outputs)
