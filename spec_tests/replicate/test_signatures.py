"""replicate: the parameters of the public functions."""

import pytest

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import clause

#: For each function: a function with the documented parameters.
DOCUMENTED = {"replicate": lambda network, devices, detach=False: ...}


@clause("replicate.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    check_calls_accepted(target.replicate, {name: DOCUMENTED[name]})


@clause("replicate.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    expected = public_functions(reference.submodule("replicate"))
    check_calls_accepted(target.replicate, expected)
