"""comm: the parameters of the public functions."""

import pytest

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import clause

MIB = 2**20
#: For each function: a function with the documented parameters.
DOCUMENTED = {
    "scatter": (
        lambda tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None: ...
    ),
    "broadcast": lambda tensor, devices=None, *, out=None: ...,
    "broadcast_coalesced": lambda tensors, devices, buffer_size=10 * MIB: ...,
    "reduce_add": lambda inputs, destination=None: ...,
    "reduce_add_coalesced": (lambda inputs, destination=None, buffer_size=10 * MIB: ...),
    "gather": lambda tensors, dim=0, destination=None, *, out=None: ...,
}


@clause("comm.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    check_calls_accepted(target.comm, {name: DOCUMENTED[name]})


@clause("comm.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    expected = public_functions(reference.submodule("comm"))
    check_calls_accepted(target.comm, expected)
