"""parallel_apply.get_a_var: the first tensor in nested containers."""

import pytest
import torch
from hypothesis import example, given

from spec_tests import checks
from spec_tests.checks.threads import call_in_thread
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import KeywordCall, build
from spec_tests.strategies.comm import dense
from spec_tests.strategies.deep_nesting import nest
from spec_tests.strategies.parallel_apply import ANY_VALUES


@clause("parallel_apply.get-a-var-deep")
@pytest.mark.parametrize(("kind", "depth"), [("tuple", 900), ("list", 900), ("dict", 450)])
def test_get_a_var_finds_a_deeply_nested_tensor(target, kind, depth):
    tensor = torch.ones(1)
    value = nest([kind], depth, tensor)
    assert call_in_thread(lambda: target.parallel_apply.get_a_var(value)) is tensor


@clause("parallel_apply.get-a-var-deep")
def test_get_a_var_raises_recursion_error_for_a_recursive_list(target):
    recursive = []
    recursive.append(recursive)
    with pytest.raises(RecursionError):
        target.parallel_apply.get_a_var(recursive)


@clause("parallel_apply.get-a-var")
@given(value=ANY_VALUES)
@example(value={"b": dense((1,)), "a": dense((2,))})
@example(value=[7, ({3: "text"}, dense((1,))), dense((2,))])
def test_get_a_var_returns_the_first_tensor(target, baselines, topology, value):
    call = KeywordCall("parallel_apply.get_a_var", {"obj": value})
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.get-a-var")
@pytest.mark.parametrize("value", [dense((1,)), None], ids=["tensor", "None"])
def test_a_key_of_a_dictionary_comes_before_its_value(target, topology, value):
    key = torch.zeros(1)
    assert target.parallel_apply.get_a_var({key: build(value, topology)}) is key
