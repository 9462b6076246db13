"""Device arguments: ``torch.device``, ordinal or text."""

from collections.abc import Sequence

from hypothesis import strategies as st

from spec_tests.strategies.calls import DeviceAt, DistinctDevices

#: The spellings of `DeviceAt`.
SPELLINGS = ("device", "ordinal", "text")


def any_device(slots: Sequence[int | None] = range(4)) -> st.SearchStrategy[DeviceAt]:
    """Draw descriptions of the devices with numbers ``slots``. Shrinks to the first number."""
    devices = st.builds(DeviceAt, st.sampled_from(slots), st.sampled_from(SPELLINGS))
    return devices.filter(lambda each: each.slot is not None or each.spelling != "ordinal")


def device_lists(
    *, min_size: int = 1, max_size: int = 4, slots: Sequence[int | None] = range(4)
) -> st.SearchStrategy[list[DeviceAt]]:
    """Draw descriptions of devices, possibly repeated. Shrinks to the first device only."""
    return st.lists(any_device(slots), min_size=min_size, max_size=max_size)


def distinct_devices() -> st.SearchStrategy[DistinctDevices]:
    """Draw descriptions of lists of devices without repeats. Shrinks to two devices.

    A list has two to four devices, but fewer if several numbers are the same device.
    """
    return st.permutations(range(4)).flatmap(
        lambda slots: st.builds(
            DistinctDevices,
            st.integers(2, 4).map(lambda count: tuple(slots[:count])),
            st.sampled_from(SPELLINGS),
        )
    )
