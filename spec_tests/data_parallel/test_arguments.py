"""data_parallel and DataParallel: kinds of arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.data_parallel import (
    FUNCTIONAL,
    DataParallelCall,
    NewModule,
    WeightedLeaves,
)
from spec_tests.strategies.devices import device_lists
from spec_tests.strategies.probe_modules import ArgumentCounts
from spec_tests.strategies.tensors import TensorSpec

X = TensorSpec((4, 2))
DEVICES = (DeviceAt(0), DeviceAt(1))


@clause("data_parallel.no-arguments")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_without_arguments_the_module_runs_once_on_the_first_device(
    target, baselines, topology, devices, functional
):
    call = DataParallelCall(NewModule(ArgumentCounts), (), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.no-tensors")
@given(devices=device_lists(), kwargs=st.sampled_from([{}, {"flag": True}]))
def test_without_tensors_the_module_runs_on_every_device(
    target, baselines, topology, devices, kwargs
):
    call = DataParallelCall(NewModule(ArgumentCounts), (1, "text"), kwargs, devices)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.keywords-alone")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_a_call_may_have_keyword_arguments_only(target, baselines, topology, devices, functional):
    call = DataParallelCall(
        NewModule(WeightedLeaves), (), {"x": X}, devices, functional=functional
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.inputs")
@pytest.mark.parametrize("inputs", [None, (), X, [X, X], {"x": X}, (X, X), "text"], ids=repr)
@pytest.mark.parametrize("keywords", [{}, {"y": X}], ids="module_kwargs={}".format)
def test_only_a_tuple_is_unpacked_into_several_arguments(
    target, baselines, topology, inputs, keywords
):
    call = DataParallelCall(NewModule(ArgumentCounts), inputs, keywords, DEVICES, functional=True)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.inputs-from-the-cpu")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_inputs_may_be_on_the_cpu(target, baselines, topology, devices, functional):
    x = TensorSpec((4, 2), slot=None)
    call = DataParallelCall(
        NewModule(WeightedLeaves), (x,), {"y": [x]}, devices, functional=functional
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.no-rows")
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_a_batch_may_have_no_rows(target, baselines, topology, devices, functional):
    x = TensorSpec((0, 2), requires_grad=True)
    call = DataParallelCall(NewModule(WeightedLeaves), (x,), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)
