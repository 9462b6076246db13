"""DataParallel: the warning of imbalanced devices."""

from types import SimpleNamespace
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.data_parallel import AttributesCall, NewModule

#: Amounts of memory, or numbers of multiprocessors, of four devices.
SIZES = st.lists(st.integers(70, 100), min_size=4, max_size=4)


def reported(topology, memory, processors):
    """Return a block in which the devices report other properties.

    The device with ordinal i reports ``memory[i % len(memory)]`` bytes and
    ``processors[i % len(processors)]`` multiprocessors.
    """

    def properties(device):
        ordinal = device if isinstance(device, int) else torch.device(device).index
        return SimpleNamespace(
            name=f"device {ordinal}",
            total_memory=memory[ordinal % len(memory)],
            multi_processor_count=processors[ordinal % len(processors)],
        )

    module = torch.get_device_module(topology.accelerator)
    # Modules of other accelerators may lack the function.
    return mock.patch.object(module, "get_device_properties", properties, create=True)


@clause("data_parallel.imbalance")
@given(
    memory=SIZES,
    processors=st.lists(st.sampled_from([4, 3, 2]), min_size=4, max_size=4),
    count=st.integers(1, 4),
)
def test_data_parallel_warns_of_imbalanced_cuda_devices(
    target, baselines, topology, memory, processors, count
):
    arguments = {"module": NewModule(nn.Tanh), "device_ids": [*map(DeviceAt, range(count))]}
    with reported(topology, memory, processors):
        call = AttributesCall("data_parallel.DataParallel", arguments)
        checks.agree(call, target, baselines, topology)


@clause("data_parallel.check-balance")
@given(memory=SIZES, processors=SIZES, count=st.integers(1, 4))
def test_check_balance_warns_of_imbalanced_devices(
    target, baselines, topology, memory, processors, count
):
    call = KeywordCall(
        "data_parallel._check_balance", {"device_ids": [*map(DeviceAt, range(count))]}
    )
    with reported(topology, memory, processors):
        checks.agree(call, target, baselines, topology)
