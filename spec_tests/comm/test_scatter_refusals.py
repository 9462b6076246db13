"""comm.scatter: error texts, and their order for a call with several mistakes."""

import pytest

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import dense

SAME_DEVICE = [DeviceAt(0), DeviceAt(0)]
LENGTH_TEXT = (
    "Expected devices and chunk_sizes to be of same length, "
    "but got len(devices) = 2 and len(chunk_sizes) = 1"
)
RANGE_TEXT = "Dimension out of range (expected to be in range of [-2, 1], but got {})"
NEGATIVE_TEXT = (
    "split_with_sizes expects split_sizes have only non-negative entries, "
    "but got split_sizes=[-1, 5]"
)
TOTAL_TEXT = (
    "split_with_sizes expects split_sizes to sum exactly to 4 "
    "(input tensor's size at dimension 0), but got split_sizes=[2, 1]"
)


def _scatter(tensor=None, devices=SAME_DEVICE, **options):
    tensor = dense((4, 2)) if tensor is None else tensor
    return PublicCall("comm.scatter", {"tensor": tensor, "devices": devices, **options})


@clause("comm.scatter.refuses-other-count")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-valid", "dim-invalid"])
def test_chunk_sizes_of_another_length_than_devices_are_refused(target, topology, dim):
    call = _scatter(chunk_sizes=[4], dim=dim)
    refused(call, target, topology, RuntimeError, LENGTH_TEXT)


@clause("comm.scatter.refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize(
    "chunk_sizes", [None, [2, 2], [9, 9]], ids=["even", "sizes", "sizes-invalid"]
)
def test_scatter_refuses_a_dim_out_of_range(target, topology, dim, chunk_sizes):
    call = _scatter(chunk_sizes=chunk_sizes, dim=dim)
    refused(call, target, topology, IndexError, RANGE_TEXT.format(dim))


@clause("comm.scatter.refuses-negative-sizes")
def test_negative_chunk_size_is_refused(target, topology):
    call = _scatter(chunk_sizes=[-1, 5])
    refused(call, target, topology, RuntimeError, NEGATIVE_TEXT)


@clause("comm.scatter.refuses-wrong-total")
@pytest.mark.parametrize("dim", [0, -2])
def test_chunk_sizes_with_another_sum_are_refused(target, topology, dim):
    call = _scatter(chunk_sizes=[2, 1], dim=dim)
    refused(call, target, topology, RuntimeError, TOTAL_TEXT)


@clause("comm.scatter.refuses-no-target")
def test_call_with_neither_devices_nor_out_is_refused(target, topology):
    text = "'NoneType' object is not iterable"
    refused(_scatter(devices=None), target, topology, TypeError, text)


@clause("comm.scatter.negative-ordinal-on-the-cpu")
def test_device_minus_one_is_the_cpu_for_a_cpu_tensor(target, baselines, topology):
    call = _scatter(dense((4, 2), slot=None), devices=[-1, -1])
    checks.agree(call, target, baselines, topology)
