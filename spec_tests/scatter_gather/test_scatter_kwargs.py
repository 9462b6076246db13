"""scatter_gather.scatter_kwargs: positional and keyword arguments of the replicas."""

import pytest
from hypothesis import given

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import KeywordCall, device_lists
from spec_tests.strategies.scatter_gather import one_sided_calls, scatter_kwargs_calls


@clause("scatter_gather.scatter_kwargs.both")
@given(call=scatter_kwargs_calls())
def test_positional_and_keyword_arguments_are_split(target, baselines, topology, call):
    # PyTorch 0.1: keyword arguments went to devices 0, 1, ... instead of the given ones (#2184).
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.scatter_kwargs.result-class")
@given(call=scatter_kwargs_calls())
def test_scatter_kwargs_returns_two_tuples_of_equal_length(target, topology, call):
    inputs, kwargs = call.run(target, call.inputs(topology))
    found = type(inputs), type(kwargs), len(inputs) - len(kwargs)
    checks.same(found, (tuple, tuple, 0), call)


@clause("scatter_gather.scatter_kwargs.pads-kwargs")
@given(call=one_sided_calls("inputs"))
def test_missing_keyword_arguments_become_empty_dictionaries(target, oracle, topology, call):
    _, kwargs = call.run(target, call.inputs(topology))
    count = len(call.run(oracle, call.inputs(topology))[0])
    checks.same(kwargs, ({},) * count, call)
    # An override of scatter may write a value for one replica.
    distinct = len({id(each) for each in kwargs})
    checks.same(distinct, count, call, place="number of distinct dictionaries")


@clause("scatter_gather.scatter_kwargs.pads-inputs")
@given(call=one_sided_calls("kwargs"))
def test_missing_positional_arguments_become_empty_tuples(target, oracle, topology, call):
    inputs, _ = call.run(target, call.inputs(topology))
    count = len(call.run(oracle, call.inputs(topology))[1])
    checks.same(inputs, ((),) * count, call)


@clause("scatter_gather.scatter_kwargs.nothing")
@pytest.mark.parametrize("kwargs", [{}, None], ids="kwargs={}".format)
@given(devices=device_lists())
def test_call_without_arguments_returns_two_empty_tuples(
    target, baselines, topology, kwargs, devices
):
    arguments = {"inputs": (), "kwargs": kwargs, "target_gpus": devices}
    call = KeywordCall("scatter_gather.scatter_kwargs", arguments)
    checks.agree(call, target, baselines, topology)
    checks.same(call.run(target, call.inputs(topology)), ((), ()), call)
