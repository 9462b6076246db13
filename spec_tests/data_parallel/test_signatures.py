"""data_parallel: the parameters of the public functions."""

import pytest

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import clause


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Do nothing. The parameters are the documented ones."""


#: For each function: a function with the documented parameters.
DOCUMENTED = {
    "DataParallel": (lambda module, device_ids=None, output_device=None, dim=0: ...),
    "DataParallel.forward": lambda self, *inputs, **kwargs: ...,
    "DataParallel.scatter": lambda self, inputs, kwargs, device_ids: ...,
    "DataParallel.replicate": lambda self, module, device_ids: ...,
    "DataParallel.parallel_apply": lambda self, replicas, inputs, kwargs: ...,
    "DataParallel.gather": lambda self, outputs, output_device: ...,
    "data_parallel": data_parallel,
}


@clause("data_parallel.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    check_calls_accepted(target.data_parallel, {name: DOCUMENTED[name]})


@clause("data_parallel.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    expected = public_functions(reference.submodule("data_parallel"))
    check_calls_accepted(target.data_parallel, expected)
