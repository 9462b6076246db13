"""data_parallel and DataParallel: exceptions of replicas, refused inputs and warnings."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad

from spec_tests.data_parallel import gradient_penalty
from spec_tests.data_parallel.imbalance import ImbalanceCall
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, device_lists
from spec_tests.strategies.data_parallel import FUNCTIONAL, DataParallelCall, NewModule
from spec_tests.strategies.probe_modules import FailsFromLimit, WeightedSum
from spec_tests.strategies.tensors import TensorSpec, device_slots


@clause("data_parallel.errors")
@given(
    devices=device_lists(min_size=2),
    rows=st.integers(1, 8),
    limit=st.sampled_from([0, 1, 5]),
    functional=FUNCTIONAL,
)
def test_an_error_names_its_replica_and_device(
    target, baselines, topology, devices, rows, limit, functional
):
    call = DataParallelCall(
        NewModule(FailsFromLimit, (limit,)),
        (TensorSpec((rows, 1)),),
        {},
        devices,
        functional=functional,
    )
    checks.agree(call, target, baselines, topology)


# PyTorch scripts the decompositions of forward-mode AD when it first needs them.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@clause("data_parallel.forward-mode-ad")
@pytest.mark.parametrize("entry_point", ["function", "class"])
@given(slots=device_slots(min_size=2), rows=st.integers(1, 8), has_parameters=st.booleans())
def test_an_input_with_a_tangent_is_refused(
    target, topology, entry_point, slots, rows, has_parameters
):
    x = torch.ones(rows, 2, device=topology.device(slots[0]))
    module = nn.Linear(2, 1).to(x.device) if has_parameters else nn.Identity()
    forward = gradient_penalty.wrap(target, module, topology.take(slots), entry_point)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"forward.mode AD"):
        forward(forward_ad.make_dual(x, torch.ones_like(x)))


@clause("data_parallel.scalars")
@given(devices=device_lists(min_size=2), rows=st.integers(1, 8), functional=FUNCTIONAL)
def test_scalars_are_gathered_into_a_vector_with_a_warning(
    target, baselines, topology, devices, rows, functional
):
    x = TensorSpec((rows, 2), requires_grad=True)
    call = DataParallelCall(NewModule(WeightedSum), (x,), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.scalars")
@given(devices=device_lists(min_size=2), functional=FUNCTIONAL)
def test_scalars_cannot_be_gathered_along_another_dimension(
    target, baselines, topology, devices, functional
):
    x = TensorSpec((2, 4))
    call = DataParallelCall(
        NewModule(WeightedSum), (x,), {}, devices, dim=1, functional=functional
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.imbalance")
@given(
    memory=st.lists(st.integers(70, 100), min_size=4, max_size=4),
    processors=st.lists(st.sampled_from([4, 3, 2]), min_size=4, max_size=4),
    count=st.integers(1, 4),
)
def test_data_parallel_warns_of_imbalanced_cuda_devices(
    target, baselines, topology, memory, processors, count
):
    devices = tuple(DeviceAt(slot) for slot in range(count))
    call = ImbalanceCall(devices, tuple(memory), tuple(processors))
    checks.agree(call, target, baselines, topology)
