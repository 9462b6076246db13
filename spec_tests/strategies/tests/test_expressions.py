"""Drawn values as Python code: calls in plain code, and expressions that make equal values."""

import importlib
import inspect
import pkgutil
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests import checks, strategies
from spec_tests.checks.outcome import raised_by
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.programs import Expressions, NoExpressionError
from spec_tests.strategies import (
    comm,
    containers,
    exceptions,
    functions,
    parallel_apply,
    replicate,
    scatter_gather,
    stateful_containers,
    tensors,
)
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.data_parallel import DataParallelCall, NewModule
from spec_tests.strategies.small_modules import Double


def _strategies(*modules):
    """Return the strategies that the functions of modules return without arguments."""
    found = {}
    for module in modules:
        for name, function in vars(module).items():
            is_own = getattr(function, "__module__", "") == module.__name__
            if is_own and inspect.isfunction(function) and not name.startswith("_"):
                parameters = inspect.signature(function).parameters.values()
                is_complete = all(each.default is not each.empty for each in parameters)
                strategy = function() if is_complete else None
                if isinstance(strategy, st.SearchStrategy):
                    found[f"{module.__name__.rpartition('.')[2]}.{name}"] = strategy
    return found


MODULES = [
    importlib.import_module(f"{strategies.__name__}.{module.name}")
    for module in pkgutil.iter_modules(strategies.__path__)
    if module.name != "tests"
]
EVERY = {
    **_strategies(*MODULES),
    "replicate.module_kind_calls": replicate.module_kind_calls("tagged"),
    "parallel_apply.failing_calls": parallel_apply.failing_calls(exceptions.ANY_EXCEPTIONS),
    "stateful_containers.batches": stateful_containers.batches(tensors.tensor_specs()),
    "floats": st.sampled_from([0.5, float("inf"), float("nan")]),
    "complex_numbers": st.sampled_from([1 + 2j, complex("inf"), complex("nan-infj")]),
}
CALLS = {
    name: strategy
    for name, strategy in _strategies(comm, functions, scatter_gather).items()
    if name.endswith(("calls", "applies", "gathers"))
}


@pytest.mark.parametrize("name", EVERY)
def test_expression_of_a_drawn_value_makes_an_equal_value(topology, name):
    @settings(max_examples=10)
    @given(value=EVERY[name])
    def check(value):
        expressions = Expressions()
        text = expressions.of(value)
        names = {}
        exec(expressions.imports, names)
        evaluated = eval(text, names)
        assert type(evaluated) is type(value)
        assert Expressions().of(evaluated) == text

    check()


def test_values_without_an_expression_are_refused():
    for value in (lambda: None, object(), sys.stdout):
        with pytest.raises(NoExpressionError):
            Expressions().of([value])


@pytest.mark.parametrize("name", CALLS)
def test_repr_of_a_call_is_code_that_makes_the_call(topology, oracle, name):
    @given(call=CALLS[name])
    def check(call):
        names = {
            **vars(containers),
            **{part: getattr(oracle, part) for part in ("comm", "functions", "scatter_gather")},
            "torch": torch,
            "device": torch.device,  # The name in the repr of a device, which a program imports.
            "patterned": tensors.patterned,
            "devices": topology.take(4),
        }
        checks.same(
            _outcome(lambda: eval(repr(call), names)),
            _outcome(lambda: call.run(oracle, call.inputs(topology))),
            call,
        )

    check()


def _outcome(make_call):
    try:
        return snapshot(make_call(), {})
    except Exception as error:
        return raised_by(error)


def test_a_call_of_a_wrapper_explains_its_module():
    call = DataParallelCall(NewModule(Double), (1, "text"), {"flag": None}, [DeviceAt(0)])
    expected = "DataParallel(Double(), [devices[0]], None, 0)(1, 'text', flag=None)  # Double: "
    assert repr(call).startswith(expected)
