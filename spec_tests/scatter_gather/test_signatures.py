"""scatter_gather: the parameters of the public functions."""

import pytest

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import clause

#: For each function: a function with the documented parameters.
DOCUMENTED = {
    "scatter": lambda inputs, target_gpus, dim=0: ...,
    "scatter_kwargs": lambda inputs, kwargs, target_gpus, dim=0: ...,
    "gather": lambda outputs, target_device, dim=0: ...,
    "is_namedtuple": lambda obj: ...,
}


@clause("scatter_gather.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    check_calls_accepted(target.scatter_gather, {name: DOCUMENTED[name]})


@clause("scatter_gather.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    expected = public_functions(reference.submodule("scatter_gather"))
    check_calls_accepted(target.scatter_gather, expected)
