"""``torch._C._broadcast`` and ``_broadcast_out``: stand-ins, or the primitives of a CUDA build.

``topology.device(slot)`` returns different devices for the slots 0 and 1, if there are two.
"""

import pytest
import torch

from spec_tests.harness.environment.topology import not_run
from spec_tests.strategies.tensors import counting

SHAPE = (2, 3, 4, 5)


def channels_last():
    return counting(SHAPE).to(memory_format=torch.channels_last)


def require_copies_without_nccl(topology):
    # NCCL may copy contiguous tensors between CUDA devices without raising their version counters.
    if topology.accelerator == "cuda" and topology.distinct > 1:
        not_run("copies between different CUDA devices may use NCCL")


def ordinals(topology, *slots):
    return [topology.device(slot).index for slot in slots]


def test_broadcast_to_no_devices_returns_an_empty_list(topology):
    assert torch._C._broadcast(counting(SHAPE).to(topology.device(0)), []) == []


def test_negative_ordinal_raises(topology):
    source = counting(SHAPE).to(topology.device(0))
    with pytest.raises(RuntimeError, match="Expected non-negative device index, but got -1"):
        torch._C._broadcast(source, [topology.device(0).index, -1])


def test_device_of_the_source_gets_the_source_itself(topology):
    source = counting(SHAPE).to(topology.device(0))
    copies = torch._C._broadcast(source, ordinals(topology, 0, 0))
    assert isinstance(copies, list)
    assert copies[0] is source
    assert copies[1] is source


def test_repeated_devices_get_independent_copies_of_a_cpu_tensor(topology):
    source = counting(SHAPE)
    copies = torch._C._broadcast(source, ordinals(topology, 0, 0))
    copies[0].zero_()
    assert torch.equal(copies[1].cpu(), source)
    assert copies[1].device == topology.device(0)


def test_repeated_devices_get_independent_copies_from_another_device(topology):
    topology.require(distinct=2)
    source = counting(SHAPE).to(topology.device(1))
    copies = torch._C._broadcast(source, ordinals(topology, 0, 0))
    copies[0].zero_()
    assert torch.equal(copies[1].cpu(), counting(SHAPE))


def test_device_of_the_source_may_be_second_or_missing(topology):
    topology.require(distinct=2)
    source = counting(SHAPE).to(topology.device(1))
    assert torch._C._broadcast(source, ordinals(topology, 0, 1))[1] is source
    assert torch._C._broadcast(source, ordinals(topology, 0))[0].device == topology.device(0)


@pytest.mark.parametrize(
    "source",
    [
        channels_last(),
        counting(SHAPE).transpose(0, 3),
        counting((1, 3)).expand(4, 3),
        counting((0, 3)),
    ],
    ids=["channels-last", "transposed", "expanded", "empty"],
)
def test_copies_are_contiguous(topology, source):
    (copy,) = torch._C._broadcast(source, ordinals(topology, 0))
    assert copy.is_contiguous()
    assert torch.equal(copy.cpu(), source)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.int64, torch.bool, torch.complex64], ids=str
)
def test_copies_keep_the_dtype(topology, dtype):
    source = counting(SHAPE, dtype)
    (copy,) = torch._C._broadcast(source, ordinals(topology, 0))
    assert copy.dtype == dtype
    assert torch.equal(copy.cpu(), source)


def test_copy_of_a_sparse_source_is_sparse(topology):
    source = torch.eye(3).to_sparse()
    (copy,) = torch._C._broadcast(source, ordinals(topology, 0))
    assert copy.is_sparse
    assert copy.is_coalesced()
    assert torch.equal(copy.cpu().to_dense(), torch.eye(3))


def test_copy_of_a_source_that_requires_grad_is_differentiable(topology):
    source = counting((3,)).requires_grad_()
    (copy,) = torch._C._broadcast(source, ordinals(topology, 0))
    assert type(copy.grad_fn).__name__ == "CopyBackwards"
    copy.sum().backward()
    assert torch.equal(source.grad, torch.ones(3))


def test_copy_without_grad_mode_has_no_graph(topology):
    source = counting((3,)).requires_grad_()
    with torch.no_grad():
        (copy,) = torch._C._broadcast(source, ordinals(topology, 0))
    assert not copy.requires_grad


def test_copy_of_a_subclass_is_a_plain_tensor(topology):
    source = torch.nn.Parameter(counting((3,)))
    with torch.no_grad():
        (copy,) = torch._C._broadcast(source, ordinals(topology, 0))
    assert type(copy) is torch.Tensor


def test_broadcast_to_no_outputs_returns_an_empty_list(topology):
    assert torch._C._broadcast_out(counting(SHAPE), []) == []


def test_outputs_are_returned_as_the_same_objects(topology):
    outs = [torch.empty(SHAPE, device=device) for device in topology.take(2)]
    results = torch._C._broadcast_out(counting(SHAPE), outs)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    assert all(torch.equal(out.cpu(), counting(SHAPE)) for out in outs)


def test_output_on_the_cpu_raises(topology):
    outs = [torch.empty(SHAPE, device=topology.device(0)), torch.empty(SHAPE)]
    text = (
        f"Expected all output tensors to be {topology.accelerator.upper()} tensors, "
        "but output tensor at index 1 has device 'cpu'"
    )
    with pytest.raises(RuntimeError) as caught:
        torch._C._broadcast_out(counting(SHAPE), outs)
    assert text in str(caught.value)


def test_output_of_another_shape_raises_before_any_write(topology):
    first, second = torch.zeros(5, 5), torch.zeros(1, 5, 5)
    outs = [first.to(topology.device(0)), second.to(topology.device(0))]
    text = (
        "Expected all output tensors to have same shape as the source tensor [5, 5], "
        "but output tensor at index 1 has shape [1, 5, 5]"
    )
    with pytest.raises(RuntimeError) as caught:
        torch._C._broadcast_out(torch.ones(5, 5), outs)
    assert text in str(caught.value)
    assert torch.equal(outs[0].cpu(), first)


def test_outputs_keep_their_dtype_and_strides(topology):
    out = torch.empty(SHAPE, dtype=torch.float64).to(memory_format=torch.channels_last)
    out = out.to(topology.device(0))
    strides = out.stride()
    torch._C._broadcast_out(counting(SHAPE), [out])
    assert out.stride() == strides
    assert torch.equal(out.cpu(), counting(SHAPE, torch.float64))


def test_version_counter_of_an_output_increases_by_one(topology):
    require_copies_without_nccl(topology)
    out = torch.empty(SHAPE, device=topology.device(0))
    before = out._version
    torch._C._broadcast_out(counting(SHAPE), [out])
    assert out._version == before + 1


def test_leaf_output_that_requires_grad_raises(topology):
    out = torch.empty(3, device=topology.device(0), requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in"):
        torch._C._broadcast_out(counting((3,)), [out])


@pytest.mark.parametrize("coalesced", [True, False], ids="coalesced={}".format)
def test_sparse_output_is_coalesced_if_the_source_is(topology, coalesced):
    source = torch.sparse_coo_tensor(
        [[0, 1]], [1.0, 2.0], (3,), is_coalesced=coalesced, check_invariants=False
    )
    out = torch.sparse_coo_tensor([[2]], [5.0], (3,), check_invariants=True)
    out = out.to(topology.device(0))
    torch._C._broadcast_out(source, [out])
    assert out.is_coalesced() == coalesced
    assert out.cpu().to_dense().tolist() == [1.0, 2.0, 0.0]
