"""Devices as arguments, in every spelling that callers may use."""

from collections.abc import Sequence

from hypothesis import strategies as st

from spec_tests.strategies.calls import DeviceAt, DistinctDevices

SPELLINGS = ("device", "ordinal", "text")


def any_device(slots: Sequence[int | None] = range(4)) -> st.SearchStrategy[DeviceAt]:
    """Draw the device of one of ``slots``. Shrinks to the first."""
    return st.builds(DeviceAt, st.sampled_from(slots), st.sampled_from(SPELLINGS))


def device_lists(*, min_size: int = 1, max_size: int = 4) -> st.SearchStrategy[list[DeviceAt]]:
    """Draw devices, possibly repeated. Shrinks to the first device."""
    return st.lists(any_device(), min_size=min_size, max_size=max_size)


def distinct_devices() -> st.SearchStrategy[DistinctDevices]:
    """Draw devices without repeats. Shrinks to two; a topology of one device has only one."""
    return st.permutations(range(4)).flatmap(
        lambda slots: st.builds(
            DistinctDevices, st.integers(2, 4).map(lambda count: tuple(slots[:count]))
        )
    )
