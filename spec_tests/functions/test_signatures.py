"""functions: the parameters of the public functions."""

import pytest

from spec_tests.checks.signatures import check_calls_accepted, public_functions
from spec_tests.machine.clauses import clause

#: For each function: a function with the documented parameters.
DOCUMENTED = {
    "Scatter.forward": (
        lambda ctx, target_gpus, chunk_sizes, dim, input: ...  # noqa: A006
    ),
    "Scatter.backward": lambda ctx, *grads: ...,
    "Gather.forward": lambda ctx, target_device, dim, *inputs: ...,
    "Gather.backward": lambda ctx, grad_output: ...,
    "Broadcast.forward": lambda ctx, target_gpus, *inputs: ...,
    "Broadcast.backward": lambda ctx, *grads: ...,
    "ReduceAddCoalesced.forward": (lambda ctx, destination, num_inputs, *grads: ...),
    "ReduceAddCoalesced.backward": lambda ctx, *grads: ...,
}


@clause("functions.signatures")
@pytest.mark.parametrize("name", DOCUMENTED)
def test_function_has_the_documented_parameters(target, name):
    check_calls_accepted(target.functions, {name: DOCUMENTED[name]})


@clause("functions.signatures")
def test_functions_have_the_parameters_of_torch_nn_parallel(target, reference):
    expected = public_functions(reference.submodule("_functions"))
    check_calls_accepted(target.functions, expected)
