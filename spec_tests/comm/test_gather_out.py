"""comm.gather with ``out``: concatenation into a tensor that the caller provides."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused, refused_with_texts
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.comm import dense, gather_out_calls
from spec_tests.strategies.tensors import counting


def _gather(*tensors, out=None, **options):
    out = dense((8, 3)) if out is None else out
    return PublicCall("comm.gather", {"tensors": list(tensors), "out": out, **options})


@clause("comm.gather.out-filled")
@given(call=gather_out_calls())
def test_gather_fills_and_returns_the_output(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.gather.out-versions")
@pytest.mark.parametrize("count", [1, 2, 3], ids="chunks={}".format)
def test_gather_increases_the_output_version_by_one_per_chunk(target, topology, count):
    chunks = [counting((2, 3), torch.float32, device) for device in topology.take(count)]
    out = torch.empty((2 * count, 3), device=topology.device(0))
    version = out._version
    target.comm.gather(chunks, out=out)
    assert out._version == version + count


@clause("comm.gather.out-refuses-destination")
@pytest.mark.parametrize("destination", ["cpu", 0, -1, torch.device("cpu")], ids=repr)
def test_destination_together_with_out_is_refused(target, topology, destination):
    call = _gather(dense(), dense(), destination=destination)
    text = (
        "'destination' must not be specified when 'out' is specified, "
        f"but got destination={destination}"
    )
    refused(call, target, topology, RuntimeError, text)


@clause("comm.gather.out-refuses-none")
def test_gather_with_out_refuses_an_empty_list_of_chunks(target, topology):
    text = "Expected at least one tensor to gather from"
    refused(_gather(dim=7), target, topology, RuntimeError, text)


@clause("comm.gather.out-refuses-missing-dimension")
def test_gather_with_out_refuses_a_dim_out_of_range_of_the_first_chunk(target, topology):
    text = "Dimension out of range (expected to be in range of [-2, 1], but got 2)"
    refused(_gather(dense(), dense(), dim=2), target, topology, IndexError, text)


@clause("comm.gather.out-refuses-cpu-chunks")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_gather_with_out_refuses_a_chunk_on_the_cpu(target, topology, index):
    chunks = [dense(), dense()]
    chunks[index] = dense(slot=None)
    refused_with_texts(_gather(*chunks), target, topology, RuntimeError, [f"index {index}"])


@clause("comm.gather.out-refuses-other-shapes")
@pytest.mark.parametrize("shape", [(7, 3), (8, 1), (24,), (1, 8, 3)], ids=str)
def test_gather_refuses_an_output_with_another_shape(target, topology, shape):
    call = _gather(dense(), dense(), out=dense(shape))
    text = f"Expected out tensor to have shape [8, 3], but got {list(shape)}"
    refused(call, target, topology, RuntimeError, text)


GRADIENT_SOURCES = pytest.mark.parametrize("source", ["chunk", "out"])


def _gather_with_gradient(source):
    chunk = dense(requires_grad=source == "chunk")
    return _gather(chunk, dense(), out=dense((8, 3), requires_grad=source == "out"))


@clause("comm.gather.out-refuses-gradients")
@GRADIENT_SOURCES
def test_chunk_or_output_that_requires_grad_is_refused_in_grad_mode(target, topology, source):
    call = _gather_with_gradient(source)
    with pytest.raises(RuntimeError, match="modified inplace"):
        call.run(target, call.inputs(topology))


@clause("comm.gather.out-refuses-gradients")
@GRADIENT_SOURCES
def test_error_for_gradients_with_out_equals_the_reference(target, reference, topology, source):
    checks.agree(_gather_with_gradient(source), target, reference, topology)
