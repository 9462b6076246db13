"""parallel_apply: the parameters of the public functions."""

import pytest

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import clause

#: For each function: a function with the documented parameters.
DOCUMENTED = {
    "parallel_apply": (lambda modules, inputs, kwargs_tup=None, devices=None: ...),
    "get_a_var": lambda obj: ...,
}


@clause("parallel_apply.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    check_calls_accepted(target.parallel_apply, {name: DOCUMENTED[name]})


@clause("parallel_apply.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    expected = public_functions(reference.submodule("parallel_apply"))
    check_calls_accepted(target.parallel_apply, expected)
