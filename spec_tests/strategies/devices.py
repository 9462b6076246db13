"""Devices, in every spelling that callers may use."""

from collections.abc import Sequence

from hypothesis import strategies as st

from spec_tests.strategies.calls import DeviceAt, DistinctDevices

SPELLINGS = ("device", "ordinal", "text")


def any_device(slots: Sequence[int | None] = range(4)) -> st.SearchStrategy[DeviceAt]:
    """One of ``slots`` in any spelling. Shrinks to the first."""
    return st.builds(DeviceAt, st.sampled_from(slots), st.sampled_from(SPELLINGS))


def device_lists(*, min_size: int = 1, max_size: int = 4) -> st.SearchStrategy[list[DeviceAt]]:
    """Devices in any order and spelling, repeats allowed. Shrinks to the first."""
    return st.lists(any_device(), min_size=min_size, max_size=max_size)


def distinct_devices() -> st.SearchStrategy[DistinctDevices]:
    """Devices in any order, each once; one where the topology has one. Shrinks to two."""
    return st.permutations(range(4)).flatmap(
        lambda slots: st.builds(
            DistinctDevices, st.integers(2, 4).map(lambda count: tuple(slots[:count]))
        )
    )
