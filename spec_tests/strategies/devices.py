"""Devices, in every spelling that callers may use."""

from collections.abc import Sequence

from hypothesis import strategies as st

from spec_tests.strategies.calls import At, Unlike

SPELLINGS = ("device", "ordinal", "text")


def any_device(slots: Sequence[int | None] = range(4)) -> st.SearchStrategy[At]:
    """One of ``slots`` in any spelling. Shrinks to the first."""
    return st.builds(At, st.sampled_from(slots), st.sampled_from(SPELLINGS))


def device_lists(*, min_size: int = 1, max_size: int = 4) -> st.SearchStrategy[list[At]]:
    """Devices in any order and spelling, repeats allowed. Shrinks to the first."""
    return st.lists(any_device(), min_size=min_size, max_size=max_size)


def unlike_devices() -> st.SearchStrategy[Unlike]:
    """Devices in any order, each once; one where the topology has one. Shrinks to two."""
    return st.permutations(range(4)).flatmap(
        lambda slots: st.builds(Unlike, st.integers(2, 4).map(lambda count: tuple(slots[:count])))
    )
