"""Calls that the primitives of ``torch._C`` and their stand-ins refuse: the class and the text.

Texts about devices name the accelerator in capital letters; ``SIM`` stands for it.
"""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.calls import StreamAt
from spec_tests.strategies.tensors import counting

BUFFER_SIZE = 1 << 20  # bytes


def arange(*shape):
    return counting(shape)


def leaf(tensor):
    return tensor.requires_grad_()


def sparse(device="cpu"):
    return torch.eye(2).to_sparse().to(device)


#: For each case: the primitive, its arguments for a first device `a` with the ordinal `i`, the
#: class of the error, and its text.
REFUSALS = {
    "broadcast-negative-ordinal": (
        "_broadcast",
        lambda a, i: (arange(3).to(a), [i, -1]),
        RuntimeError,
        "Expected non-negative device index, but got -1",
    ),
    "broadcast-out-on-the-cpu": (
        "_broadcast_out",
        lambda a, i: (arange(3), [arange(3).to(a), arange(3)]),
        RuntimeError,
        "Expected all output tensors to be SIM tensors, "
        "but output tensor at index 1 has device 'cpu'",
    ),
    "broadcast-out-of-another-shape": (
        "_broadcast_out",
        lambda a, i: (arange(5, 5), [arange(5, 5).to(a), arange(1, 5, 5).to(a)]),
        RuntimeError,
        "Expected all output tensors to have same shape as the source tensor [5, 5], "
        "but output tensor at index 1 has shape [1, 5, 5]",
    ),
    "broadcast-out-that-is-a-leaf": (
        "_broadcast_out",
        lambda a, i: (arange(3), [leaf(arange(3).to(a))]),
        RuntimeError,
        "a leaf Variable that requires grad is being used in",
    ),
    "coalesced-tensor-on-the-cpu": (
        "_broadcast_coalesced",
        lambda a, i: ([arange(4).to(a), arange(4)], [i], BUFFER_SIZE),
        RuntimeError,
        "All tensors must be on devices[0]: ",
    ),
    "coalesced-negative-ordinal": (
        "_broadcast_coalesced",
        lambda a, i: ([arange(4).to(a)], [i, -1], BUFFER_SIZE),
        RuntimeError,
        "Expected non-negative device index, but got -1",
    ),
    "scatter-no-device": (
        "_scatter",
        lambda a, i: (arange(6), [], None, 0, None),
        RuntimeError,
        "Expected at least one device to scatter to",
    ),
    "scatter-lengths-before-dim": (
        "_scatter",
        lambda a, i: (arange(6), [i, i, i], [1, 2], 7, None),
        RuntimeError,
        "Expected devices and chunk_sizes to be of same length, "
        "but got len(devices) = 3 and len(chunk_sizes) = 2",
    ),
    "scatter-dim": (
        "_scatter",
        lambda a, i: (arange(4, 6), [i], None, 2, None),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "scatter-dim-of-a-scalar": (
        "_scatter",
        lambda a, i: (arange(), [i], [1], 1, None),
        IndexError,
        "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
    ),
    "scatter-scalar": (
        "_scatter",
        lambda a, i: (arange(), [i], None, -1, None),
        RuntimeError,
        "chunk expects at least a 1-dimensional tensor",
    ),
    "scatter-scalar-with-sizes": (
        "_scatter",
        lambda a, i: (arange(), [i], [1], 0, None),
        RuntimeError,
        "split expects at least a 1-dimensional tensor",
    ),
    "scatter-negative-size": (
        "_scatter",
        lambda a, i: (arange(6), [i, i], [-1, 7], 0, None),
        RuntimeError,
        "split_with_sizes expects split_sizes have only non-negative entries, "
        "but got split_sizes=[-1, 7]",
    ),
    "scatter-wrong-total": (
        "_scatter",
        lambda a, i: (arange(6, 4), [i, i], [2, 2], -2, None),
        RuntimeError,
        "split_with_sizes expects split_sizes to sum exactly to 6 "
        "(input tensor's size at dimension 0), but got split_sizes=[2, 2]",
    ),
    "scatter-negative-ordinal": (
        "_scatter",
        lambda a, i: (arange(6).to(a), [-1], None, 0, None),
        RuntimeError,
        "Expected non-negative device index, but got -1",
    ),
    "scatter-sparse": (
        "_scatter",
        lambda a, i: (sparse(), [i, i], None, 0, None),
        NotImplementedError,
        "aten::as_strided",
    ),
    "scatter-streams-no-sequence": (
        "_scatter",
        lambda a, i: (arange(4, 6), [i], None, 0, 3),
        RuntimeError,
        "Expected a sequence in THPUtils_PySequence_to_CUDA",
    ),
    "scatter-no-streams": (
        "_scatter",
        lambda a, i: (arange(4, 6), [i], None, 0, [3]),
        RuntimeError,
        "Unknown data type found in stream list. Need torch.",
    ),
    "scatter-out-no-output": (
        "_scatter_out",
        lambda a, i: (arange(4, 4), [], 7, None),
        RuntimeError,
        "Expected at least one output tensor to scatter to",
    ),
    "scatter-out-dim-before-outputs": (
        "_scatter_out",
        lambda a, i: (arange(4, 4), [arange(1)], 2, None),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "scatter-out-on-the-cpu": (
        "_scatter_out",
        lambda a, i: (arange(4, 4), [arange(4, 4)], 0, None),
        RuntimeError,
        "Expected all output tensors to be SIM tensors, "
        "but output tensor at index 0 has device 'cpu'",
    ),
    "scatter-out-shape-before-a-later-cpu-tensor": (
        "_scatter_out",
        lambda a, i: (arange(4, 4), [arange(1, 2, 4).to(a), arange(4, 4)], -2, None),
        RuntimeError,
        "Output tensor at index 0 has incorrect shape: [1, 2, 4]. Expected same shape "
        "except for scatter dim 0 as the source tensor: [4, 4]",
    ),
    "scatter-out-wrong-total": (
        "_scatter_out",
        lambda a, i: (arange(4, 4), [arange(2, 4).to(a), arange(1, 4).to(a)], 0, None),
        RuntimeError,
        "Total size for output tensors along scatter dim 0 does not match the source tensor "
        "size at dim 0. Expected 4, but got total size 3",
    ),
    "scatter-out-that-is-a-leaf": (
        "_scatter_out",
        lambda a, i: (arange(4, 4), [leaf(arange(4, 4).to(a))], 0, None),
        RuntimeError,
        "a leaf Variable that requires grad is being used in",
    ),
    "gather-nothing": (
        "_gather",
        lambda a, i: ([], 0, i),
        RuntimeError,
        "Expected at least one tensor to gather from",
    ),
    "gather-dim-of-the-first": (
        "_gather",
        lambda a, i: ([arange(2, 5).to(a), arange(2, 5, 1).to(a)], 2, i),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "gather-from-the-cpu": (
        "_gather",
        lambda a, i: ([arange(2, 5).to(a), arange(2, 5)], 0, i),
        RuntimeError,
        "Expected all input tensors to be SIM tensors, but tensor at index 1 has device cpu",
    ),
    "gather-other-dimensions": (
        "_gather",
        lambda a, i: ([arange(2, 5).to(a), arange(0).to(a)], 0, i),
        RuntimeError,
        "to have the same number of dimensions, but tensor at index 1 has 1 dimensions, "
        "(expected 2)",
    ),
    "gather-shape-before-a-later-cpu-tensor": (
        "_gather",
        lambda a, i: ([arange(3, 5).to(a), arange(2, 4).to(a), arange(2, 5)], 0, i),
        RuntimeError,
        "Input tensor at index 1 has invalid shape [2, 4], but expected [2, 5]",
    ),
    "gather-scalars": (
        "_gather",
        lambda a, i: ([arange().to(a)] * 2, -1, i),
        IndexError,
        "Dimension specified as 0 but tensor has no dimensions",
    ),
    "gather-leaf": (
        "_gather",
        lambda a, i: ([leaf(arange(2, 5).to(a))], 0, i),
        RuntimeError,
        "returns multiple views",
    ),
    "gather-sparse": (
        "_gather",
        lambda a, i: ([sparse(a)], 0, i),
        NotImplementedError,
        "aten::as_strided",
    ),
    "gather-out-from-the-cpu": (
        "_gather_out",
        lambda a, i: ([arange(2)], arange(2), 0),
        RuntimeError,
        "Expected all input tensors to be SIM tensors, but tensor at index 0 has device 'cpu'",
    ),
    "gather-out-of-another-shape": (
        "_gather_out",
        lambda a, i: ([arange(2, 5).to(a)] * 2, arange(3, 5), 0),
        RuntimeError,
        "Expected out tensor to have shape [4, 5], but got [3, 5]",
    ),
    "gather-out-that-is-a-leaf": (
        "_gather_out",
        lambda a, i: ([arange(2).to(a)], leaf(arange(2)), 0),
        RuntimeError,
        "is a view and is being modified inplace",
    ),
}
#: Calls for which the real primitives have undefined behaviour.
UNDEFINED = {
    "coalesced-no-devices": (
        "_broadcast_coalesced",
        lambda a, i: ([], [], BUFFER_SIZE),
        RuntimeError,
        "needs at least one device",
    ),
    "scatter-out-scalar": (
        "_scatter_out",
        lambda a, i: (arange(), [arange().to(a)], 0, None),
        RuntimeError,
        "output 0 has none",
    ),
    "gather-below-minus-one": (
        "_gather",
        lambda a, i: ([arange(2, 5).to(a)], 0, -2),
        RuntimeError,
        "invalid device ordinal",
    ),
}


def find_error(function, topology, row):
    _, make, error, text = row
    with pytest.raises(error) as caught:
        function(*make(topology.device(0), topology.device(0).index))
    # Spaces differ between releases of PyTorch.
    expected = text.replace("SIM", topology.accelerator.upper()).replace(" ", "")
    assert expected in str(caught.value).replace(" ", "")


@pytest.mark.parametrize("name", REFUSALS)
def test_wrong_call_is_refused(topology, name):
    find_error(getattr(torch._C, REFUSALS[name][0]), topology, REFUSALS[name])


@pytest.mark.parametrize("name", UNDEFINED)
def test_stand_in_refuses_an_undefined_call(topology, name):
    find_error(STAND_INS[UNDEFINED[name][0]], topology, UNDEFINED[name])


def test_refused_outputs_are_not_written(topology):
    outs = [torch.zeros(2, 4, device=topology.device(0)), torch.zeros(1, 4)]
    with pytest.raises(RuntimeError):
        torch._C._scatter_out(counting((4, 4)) + 1, outs, 0, None)
    with pytest.raises(RuntimeError):
        torch._C._broadcast_out(counting((2, 4)) + 1, outs)
    assert outs[0].count_nonzero() == 0


def test_error_for_a_stream_has_its_index_and_the_ordinal_of_the_chunk(topology):
    topology.require(distinct=2)
    first, second = topology.take(2)
    streams = [None, StreamAt(0).build(topology)]
    with pytest.raises(RuntimeError) as caught:
        torch._C._scatter(counting((4, 6)), [first.index, second.index], None, 0, streams)
    # The ordinal of the stream is printed as a character, and the character 0 ends the text.
    text = "Expected the device associated with the stream at index 1 (was "
    assert str(caught.value).startswith(text)
    with pytest.raises(RuntimeError) as caught:
        torch._C._scatter(counting((4, 6)), [first.index], None, 0, [StreamAt(1).build(topology)])
    end = f"to match the device supplied at that index (expected {first.index})"
    assert end in str(caught.value)


def test_scatter_out_checks_a_stream_after_earlier_writes(topology):
    topology.require(distinct=2)
    outs = [torch.zeros(2, 4, device=device) for device in topology.take(2)]
    streams = [None, StreamAt(0).build(topology)]
    with pytest.raises(RuntimeError, match=r"the stream at index 1 \(was "):
        torch._C._scatter_out(counting((4, 4)) + 1, outs, 0, streams)
    assert [int(out.count_nonzero()) for out in outs] == [8, 0]


def test_scatter_out_checks_the_stream_of_a_chunk_that_stays_on_its_device(topology):
    topology.require(distinct=2)
    tensor = counting((4, 4)).to(topology.device(0))
    with pytest.raises(RuntimeError, match="the stream at index 0"):
        torch._C._scatter_out(tensor, [tensor.clone()], 0, [StreamAt(1).build(topology)])
