"""Randomly drawn calls for the comparison. Every process draws the same calls."""

from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spec_tests.harness.compare.outcome import Call
from spec_tests.strategies import coalesced, comm, functions, gather, scatter_gather

__all__ = ["STRATEGIES", "draw_calls"]

#: One strategy for each kind of call.
STRATEGIES: tuple[st.SearchStrategy[Call], ...] = (
    comm.scatter_calls(),
    comm.scatter_out_calls(),
    comm.broadcast_calls(),
    comm.sparse_broadcast_calls(),
    comm.broadcast_out_calls(),
    comm.gather_calls(),
    comm.gather_out_calls(),
    coalesced.broadcast_coalesced_calls(),
    coalesced.reduce_add_calls(),
    coalesced.reduce_add_coalesced_calls(),
    functions.scatter_applies(),
    functions.cpu_scatter_applies(),
    functions.gather_applies(),
    functions.scalar_gathers(),
    functions.broadcast_applies(),
    functions.reduce_applies(),
    scatter_gather.scatter_calls(),
    scatter_gather.tensor_scatter_calls(),
    scatter_gather.refused_scatter_calls(),
    scatter_gather.scatter_kwargs_calls(),
    gather.gather_calls(),
    gather.tensor_gather_calls(),
    gather.scalar_calls(),
    gather.mismatched_calls(),
    gather.dict_gather_calls(),
)


def draw_calls(examples: int) -> Iterator[Call]:
    """Yield at most ``examples`` calls of each strategy."""
    for strategy in STRATEGIES:
        yield from _draw_from(strategy, examples)


def _draw_from(strategy: st.SearchStrategy[Call], examples: int) -> list[Call]:
    calls: list[Call] = []

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(call=strategy)
    def collect(call: Call) -> None:
        calls.append(call)

    collect()
    return calls
