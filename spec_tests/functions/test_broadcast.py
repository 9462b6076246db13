"""functions.Broadcast: copies of several tensors, with gradients."""

import pytest
import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.refusals import check_error, refused
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.calls import ApplyCall, DistinctDevices, build
from spec_tests.strategies.comm import dense
from spec_tests.strategies.functions import broadcast_applies
from spec_tests.strategies.tensors import COMPLEX, FLOATS, TensorSpec, counting


def _broadcast(*tensors):
    return ApplyCall("Broadcast", (DistinctDevices((0, 1)),), tensors)


@clause("functions.broadcast.copies")
@clause("functions.broadcast.frozen-stay-frozen")
@given(call=broadcast_applies())
def test_result_lists_the_copies_device_by_device(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.broadcast.gradients-summed")
@given(call=broadcast_applies(dtype_groups=(FLOATS, COMPLEX), grads=(True,), counts=(1, 2, 3)))
def test_gradient_is_the_sum_of_the_copies_gradients(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.broadcast.gradient-layout")
@pytest.mark.parametrize("layout", ["channels_last", "transposed", "contiguous"])
def test_accumulated_gradient_has_the_strides_of_its_leaf(target, topology, layout):
    # PyTorch 1.5: gradients of channels-last weights came out row-major (#34904).
    weight = TensorSpec((4, 3, 2, 2), layout=layout, requires_grad=True).build(topology)
    copies = target.functions.Broadcast.apply(topology.take(2), weight, weight.detach())
    sum((copy * 2).sum().cpu() for copy in copies[::2]).backward()
    checks.same(weight.grad, torch.full_like(weight, 4.0), place="gradient")
    checks.same(weight.grad.stride(), weight.stride(), place="strides")


@clause("functions.broadcast.first-are-views")
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "requires-grad"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad], ids=["grad", "no-grad"])
def test_outputs_on_the_first_device_are_views_of_the_inputs(target, topology, grad, mode):
    tensor = counting((3,), torch.float32, topology.device(0)).requires_grad_(grad)
    with mode():
        first, *_ = target.functions.Broadcast.apply(topology.take(2), tensor)
    checks.same(first is tensor, False, place="aliasing")
    checks.shares_memory(first, tensor)
    with torch.no_grad():
        first.fill_(-1)
    checks.same(tensor.tolist(), [-1] * 3, place="aliasing")
    versions = {first._version, tensor._version}
    checks.same((len(versions), 0 in versions), (1, False), place="aliasing")


@clause("functions.broadcast.views-refuse-in-place")
def test_view_of_a_broadcast_leaf_refuses_in_place_writes(target, topology):
    tensor = torch.ones(3, device=topology.device(0), requires_grad=True)
    first, *_ = target.functions.Broadcast.apply(topology.take(2), tensor)
    checks.shares_memory(first, tensor)
    with pytest.raises(RuntimeError) as caught:
        first.zero_()
    check_error(caught.value, error_of("functions.broadcast.views-refuse-in-place"), topology)


@clause("functions.broadcast.copies-may-be-written")
def test_in_place_write_to_a_copy_is_differentiated(target, topology):
    topology.require(distinct=2)
    tensor = torch.ones(3, device=topology.device(0), requires_grad=True)
    *_, copy = target.functions.Broadcast.apply(topology.take(2), tensor)
    copy.mul_(3)
    (found,) = torch.autograd.grad(copy.sum(), tensor)
    checks.same((found.tolist(), tensor.tolist()), ([3.0] * 3, [1.0] * 3))


@clause("functions.broadcast.refuses-cpu")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_broadcast_function_refuses_a_cpu_tensor(target, topology, index):
    tensors = [dense(), dense()]
    tensors[index] = dense(slot=None)
    error = error_of("functions.broadcast.refuses-cpu")
    refused(_broadcast(*tensors), target, topology, error)


@clause("functions.broadcast.refuses-other-devices")
def test_tensor_on_another_device_than_the_first_is_refused(target, topology):
    topology.require(distinct=2)
    call = _broadcast(dense(), dense(slot=1))
    name = "functions.broadcast.refuses-other-devices"
    refused(call, target, topology, error_of(name, ordinal=topology.ordinals[0]))


@clause("functions.broadcast.no-tensors")
def test_broadcast_without_tensors_returns_an_empty_tuple(target, topology):
    checks.same(target.functions.Broadcast.apply(topology.take(2)), ())


@clause("functions.broadcast.current-device")
def test_device_without_index_is_the_current_one(target, topology):
    topology.require(distinct=2)
    tensor = build(dense(slot=1), topology)
    with torch.accelerator.device_index(topology.device(1).index):
        devices = [torch.device(topology.accelerator), topology.device(2).index]
        copies = target.functions.Broadcast.apply(devices, tensor)
    expected = tuple(map(tensor.to, topology.take([1, 2])))
    checks.same(snapshot(copies, {}), snapshot(expected, {}))
