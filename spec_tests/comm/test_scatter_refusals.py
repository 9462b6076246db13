"""comm.scatter: what it refuses, in which words, and which refusal comes first."""

import pytest

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import dense

TWO = [DeviceAt(0), DeviceAt(0)]
#: In the order in which they are looked for: a call with several mistakes names the first.
LENGTH = (
    "Expected devices and chunk_sizes to be of same length, "
    "but got len(devices) = 2 and len(chunk_sizes) = 1"
)
NO_DEVICES = "Expected at least one device to scatter to"
RANGE = "Dimension out of range (expected to be in range of [-2, 1], but got {})"
NEGATIVE = (
    "split_with_sizes expects split_sizes have only non-negative entries, "
    "but got split_sizes=[-1, 5]"
)
TOTAL = (
    "split_with_sizes expects split_sizes to sum exactly to 4 "
    "(input tensor's size at dimension 0), but got split_sizes=[2, 1]"
)


def _scatter(tensor=None, devices=TWO, **rest):
    tensor = dense((4, 2)) if tensor is None else tensor
    return PublicCall("comm.scatter", {"tensor": tensor, "devices": devices, **rest})


@clause("comm.scatter.refuses-no-devices")
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
@pytest.mark.parametrize("sizes", [None, [], [4]], ids="sizes={}".format)
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-right", "dim-wrong"])
def test_no_device_is_refused(target, topology, slot, sizes, dim):
    call = _scatter(dense((4, 2), slot=slot), devices=[], chunk_sizes=sizes, dim=dim)
    refused(call, target, topology, RuntimeError, NO_DEVICES)


@clause("comm.scatter.refuses-other-count")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-right", "dim-wrong"])
def test_another_number_of_sizes_than_devices_is_refused(target, topology, dim):
    call = _scatter(chunk_sizes=[4], dim=dim)
    refused(call, target, topology, RuntimeError, LENGTH)


@clause("comm.scatter.refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize("sizes", [None, [2, 2], [9, 9]], ids=["even", "sizes", "sizes-wrong"])
def test_a_dimension_that_the_tensor_lacks_is_refused(target, topology, dim, sizes):
    call = _scatter(chunk_sizes=sizes, dim=dim)
    refused(call, target, topology, IndexError, RANGE.format(dim))


@clause("comm.scatter.refuses-scalars")
@pytest.mark.parametrize(
    ("sizes", "verb"), [(None, "chunk"), ([1, 0], "split")], ids=["even", "sizes"]
)
@pytest.mark.parametrize("dim", [0, -1])
def test_a_scalar_is_refused(target, topology, sizes, verb, dim):
    call = _scatter(dense(()), chunk_sizes=sizes, dim=dim)
    text = f"{verb} expects at least a 1-dimensional tensor"
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.refuses-negative-sizes")
def test_a_negative_size_is_refused(target, topology):
    call = _scatter(chunk_sizes=[-1, 5])
    refused(call, target, topology, RuntimeError, NEGATIVE)


@clause("comm.scatter.refuses-wrong-total")
@pytest.mark.parametrize("dim", [0, -2])
def test_sizes_that_do_not_sum_up_are_refused(target, topology, dim):
    call = _scatter(chunk_sizes=[2, 1], dim=dim)
    refused(call, target, topology, RuntimeError, TOTAL)


@clause("comm.scatter.refuses-negative-ordinal")
def test_a_negative_ordinal_is_refused_for_a_chunk_that_moves(target, topology):
    text = "Expected non-negative device index, but got -1"
    refused(_scatter(devices=[DeviceAt(0), -1]), target, topology, RuntimeError, text)


@clause("comm.scatter.refuses-no-target")
def test_neither_devices_nor_outputs_is_refused(target, topology):
    text = "'NoneType' object is not iterable"
    refused(_scatter(devices=None), target, topology, TypeError, text)


@clause("comm.scatter.negative-ordinal-on-the-cpu")
def test_minus_one_stands_for_the_cpu_where_the_tensor_is_there(target, answers, topology):
    call = _scatter(dense((4, 2), slot=None), devices=[-1, -1])
    checks.agree(call, target, answers, topology)
