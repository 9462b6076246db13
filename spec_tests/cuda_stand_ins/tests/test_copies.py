"""``torch._C``'s broadcast, scatter and gather: defaults, empty lists, memory and histories.

The chapter `comm` compares values, dtypes and devices with those of the oracle.
"""

import pytest
import torch

from spec_tests.harness.environment.topology import not_run
from spec_tests.strategies.calls import StreamAt
from spec_tests.strategies.tensors import counting

SHAPE = (2, 3, 4, 5)


def ordinals(topology, count):
    return [device.index for device in topology.take(count)]


def chunks(topology, *shapes):
    return [counting(shape).to(topology.device(slot)) for slot, shape in enumerate(shapes)]


def test_empty_lists_of_devices_and_outputs_return_empty_lists(topology):
    assert torch._C._broadcast(counting(SHAPE).to(topology.device(0)), []) == []
    assert torch._C._broadcast_out(counting(SHAPE), []) == []


def test_device_of_the_source_may_be_second_or_missing(topology):
    topology.require(distinct=2)
    source = counting(SHAPE).to(topology.device(1))
    assert torch._C._broadcast(source, ordinals(topology, 2))[1] is source
    assert torch._C._broadcast(source, ordinals(topology, 1))[0].device == topology.device(0)


def test_copy_of_a_subclass_is_a_plain_tensor(topology):
    source = torch.nn.Parameter(counting((3,)))
    (copy,) = torch._C._broadcast(source, ordinals(topology, 1))
    assert type(copy) is torch.Tensor
    assert type(copy.grad_fn).__name__ == "CopyBackwards"


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


def test_surplus_devices_are_not_validated(topology):
    devices = [*ordinals(topology, 1) * 2, -1, -1]
    assert len(torch._C._scatter(counting((2, 2)), devices, None, 0, None)) == 2


def test_streams_and_ordinals_are_not_checked_for_chunks_that_stay_on_their_device(topology):
    topology.require(distinct=2)
    tensor = counting((4, 6)).to(topology.device(0))
    streams = [StreamAt(1).build(topology)]
    (chunk,) = torch._C._scatter(tensor, ordinals(topology, 1), None, 0, streams)
    assert chunk.data_ptr() == tensor.data_ptr()
    (cpu,) = torch._C._scatter(counting((4, 6)), [-1], None, 0, None)
    assert cpu.device == torch.device("cpu")


@pytest.mark.parametrize("beyond", [1 << 16, 1 << 8], ids=["16-bits", "8-bits"])
def test_ordinals_are_truncated_to_8_bits(topology, beyond):
    device = topology.device(0)
    (chunk,) = torch._C._scatter(counting((4, 6)), [device.index + beyond], None, 0, None)
    assert chunk.device == device


@pytest.mark.parametrize(
    "tensor",
    [
        counting((6, 4)).t(),
        counting((4, 6))[:, ::2],
        counting((1, 6)).expand(4, 6),
        counting((4, 3, 5, 5)).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "channels-last"],
)
def test_copied_chunk_preserves_memory_format(topology, tensor):
    found = torch._C._scatter(tensor, ordinals(topology, 2), None, 0, None)
    # `empty_like` computes strides by the rule of torch.preserve_format.
    expected = [torch.empty_like(part).stride() for part in tensor.chunk(2)]
    assert [chunk.stride() for chunk in found] == expected


def test_chunks_on_their_device_are_views_and_others_are_copies_with_a_history(topology):
    devices = ordinals(topology, 1) * 2
    tensor = counting((4,)).requires_grad_()
    (copied, _) = torch._C._scatter(tensor, devices, None, 0, None)
    assert type(copied.grad_fn).__name__ == "ToCopyBackward0"
    tensor = counting((4,)).to(topology.device(0)).requires_grad_()
    (view, _) = torch._C._scatter(tensor, devices, None, 0, None)
    assert type(view.grad_fn).__name__ == "SplitBackward0"


@pytest.mark.parametrize("slot", [0, 1], ids=["first", "second"])
def test_destination_defaults_to_the_current_device(topology, slot):
    with torch.accelerator.device_index(topology.device(slot).index):
        result = torch._C._gather(chunks(topology, (2, 5)), 0, None)
    assert result.device == topology.device(slot)


def test_result_of_one_chunk_on_the_destination_is_a_copy(topology):
    (chunk,) = chunks(topology, (2, 5))
    result = torch._C._gather([chunk], 0, chunk.device.index)
    assert result.data_ptr() != chunk.data_ptr()
    assert not result._is_view()


@pytest.mark.parametrize(
    ("formats", "is_kept"),
    [
        ([torch.channels_last, torch.channels_last], True),
        ([torch.channels_last, torch.contiguous_format], False),
        ([torch.contiguous_format, torch.channels_last], False),
        ([torch.channels_last, torch.contiguous_format, torch.channels_last], False),
    ],
    ids=["all", "first", "second", "all-but-second"],
)
def test_result_is_channels_last_if_all_chunks_are(topology, formats, is_kept):
    tensors = [
        counting(SHAPE).to(device=topology.device(slot), memory_format=memory_format)
        for slot, memory_format in enumerate(formats)
    ]
    result = torch._C._gather(tensors, 0, -1)
    assert result.is_contiguous(memory_format=torch.channels_last) == is_kept
    assert result.is_contiguous() != is_kept


def test_result_keeps_channels_last_3d(topology):
    tensor = counting((2, 3, 4, 5, 6)).to(topology.device(0))
    tensor = tensor.contiguous(memory_format=torch.channels_last_3d)
    result = torch._C._gather([tensor], 0, -1)
    assert result.is_contiguous(memory_format=torch.channels_last_3d)


def test_result_has_the_dtype_of_the_first_chunk(topology):
    tensors = [
        torch.tensor([1, 2]).to(topology.device(0)),
        torch.tensor([2.75]).to(topology.device(1)),
    ]
    assert torch.equal(torch._C._gather(tensors, 0, -1), torch.tensor([1, 2, 2]))


def test_version_counter_of_an_output_increases_by_one_for_each_copy(topology):
    if topology.accelerator == "cuda" and topology.distinct > 1:
        not_run("NCCL copies between CUDA devices without raising version counters")
    out = torch.empty(SHAPE, device=topology.device(0))
    before = out._version
    torch._C._broadcast_out(counting(SHAPE), [out])
    assert out._version == before + 1
    torch._C._scatter_out(counting(SHAPE), [out], 0, None)
    assert out._version == before + 2
    torch._C._gather_out([out.clone()[:1]] * 2, out, 0)
    assert out._version == before + 4
