"""``torch._C._scatter_out``: the stand-in, or the primitive of a CUDA build."""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.calls import StreamAt
from spec_tests.strategies.tensors import counting


def outputs(topology, *shapes, **options):
    return [
        torch.zeros(shape, device=topology.device(slot), **options)
        for slot, shape in enumerate(shapes)
    ]


def test_empty_list_of_outputs_raises(topology):
    with pytest.raises(RuntimeError, match="Expected at least one output tensor to scatter to"):
        torch._C._scatter_out(counting((4, 4)), [], 7, None)


def test_dim_out_of_range_raises_before_outputs_are_checked(topology):
    text = r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"
    with pytest.raises(IndexError, match=text):
        torch._C._scatter_out(counting((4, 4)), [torch.zeros(1)], 2, None)


def test_output_on_the_cpu_raises(topology):
    text = (
        f"Expected all output tensors to be {topology.accelerator.upper()} tensors, "
        "but output tensor at index 0 has device 'cpu'"
    )
    with pytest.raises(RuntimeError) as caught:
        torch._C._scatter_out(counting((4, 4)), [torch.zeros(4, 4)], 0, None)
    assert text in str(caught.value)


@pytest.mark.parametrize("dim", [0, -2], ids="dim={}".format)
def test_output_of_the_wrong_shape_raises_with_wrapped_dim(topology, dim):
    text = (
        "Output tensor at index 0 has incorrect shape: [1, 2, 4]. Expected same shape "
        "except for scatter dim 0 as the source tensor: [4, 4]"
    )
    with pytest.raises(RuntimeError) as caught:
        torch._C._scatter_out(counting((4, 4)), outputs(topology, (1, 2, 4)), dim, None)
    assert text in str(caught.value)


def test_wrong_shape_raises_before_a_later_cpu_tensor(topology):
    outs = [*outputs(topology, (4, 5)), torch.zeros(4, 4)]
    with pytest.raises(RuntimeError, match="Output tensor at index 0 has incorrect shape"):
        torch._C._scatter_out(counting((4, 4)), outs, 0, None)


def test_wrong_total_size_raises_before_any_write(topology):
    outs = outputs(topology, (2, 4), (1, 4))
    text = (
        "Total size for output tensors along scatter dim 0 does not match the source tensor "
        "size at dim 0. Expected 4, but got total size 3"
    )
    with pytest.raises(RuntimeError) as caught:
        torch._C._scatter_out(counting((4, 4)), outs, 0, None)
    assert text in str(caught.value)
    assert all(out.count_nonzero() == 0 for out in outs)


def test_stream_of_another_device_raises_after_earlier_writes(topology):
    topology.require(distinct=2)
    outs = outputs(topology, (2, 4), (2, 4))
    streams = [None, StreamAt(0).build(topology)]
    with pytest.raises(RuntimeError, match=r"the stream at index 1 \(was "):
        torch._C._scatter_out(counting((4, 4)) + 1, outs, 0, streams)
    assert outs[0].count_nonzero() == 8
    assert outs[1].count_nonzero() == 0


def test_stream_is_checked_for_chunks_on_the_same_device(topology):
    topology.require(distinct=2)
    tensor = counting((4, 4)).to(topology.device(0))
    streams = [StreamAt(1).build(topology)]
    with pytest.raises(RuntimeError, match="the stream at index 0"):
        torch._C._scatter_out(tensor, outputs(topology, (4, 4)), 0, streams)


def test_scalars_raise(topology):
    # The CUDA primitive reads past the end of an empty list, so only the stand-in is tested.
    with pytest.raises(RuntimeError, match="output 0 has none"):
        STAND_INS["_scatter_out"](torch.tensor(1.0), outputs(topology, ()), 0, None)


def test_outputs_are_returned_as_the_same_objects(topology):
    outs = outputs(topology, (1, 4), (3, 4))
    results = torch._C._scatter_out(counting((4, 4)), outs, 0, None)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    assert torch.equal(torch.cat([out.cpu() for out in outs]), counting((4, 4)))


def test_outputs_keep_their_dtype_and_strides(topology):
    left = torch.zeros(4, 2, dtype=torch.float64, device=topology.device(0))
    right = torch.zeros(4, 2, device=topology.device(1))
    torch._C._scatter_out(counting((4, 4)), [left, right], 1, None)
    assert left.dtype == torch.float64
    assert torch.equal(left.cpu(), counting((4, 4), torch.float64)[:, :2])

    columns = torch.zeros(4, 2, device=topology.device(0)).t()
    torch._C._scatter_out(counting((4, 4)), [columns, right.t().contiguous()], 0, None)
    assert columns.stride() == (1, 2)
    assert torch.equal(columns.cpu(), counting((4, 4))[:2])


def test_each_of_two_views_of_one_tensor_is_written_once(topology):
    tensor = counting((4, 4)).to(topology.device(0))
    top, bottom = tensor.clone().chunk(2)
    before = top._version, bottom._version
    torch._C._scatter_out(tensor, [top, bottom], 0, None)
    # The two views share a version counter, which both writes increase.
    assert (top._version, bottom._version) == (before[0] + 2, before[1] + 2)


def test_version_counter_of_each_output_increases_by_one(topology):
    outs = outputs(topology, (2, 4), (2, 4))
    before = [out._version for out in outs]
    torch._C._scatter_out(counting((4, 4)), outs, 0, None)
    assert [out._version for out in outs] == [version + 1 for version in before]


def test_outputs_are_differentiable(topology):
    tensor = counting((4, 4)).requires_grad_()
    outs = outputs(topology, (2, 4), (2, 4))
    torch._C._scatter_out(tensor, outs, 0, None)
    assert type(outs[0].grad_fn).__name__ == "CopyBackwards"
    (3 * outs[1].sum()).backward()
    assert torch.equal(tensor.grad, torch.tensor([[0.0], [0], [3], [3]]).expand(4, 4))


def test_leaf_output_that_requires_grad_raises(topology):
    outs = outputs(topology, (4, 4), requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in"):
        torch._C._scatter_out(counting((4, 4)), outs, 0, None)
