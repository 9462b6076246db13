"""For each test of a C++ clause, a front end that violates the clause fails the test.

The clauses describe PyTorch's C++ front end, not a target, so no perturbation of impl can violate
them.
Each wrong front end differs from the real one in one function, whose first argument is the real
front end.
"""

import inspect

import pytest
import torch

from spec_tests.cpp_front_end import loader
from spec_tests.cpp_front_end import test_data_parallel as data_parallel
from spec_tests.cpp_front_end import test_parallel_apply as parallel_apply
from spec_tests.cpp_front_end import test_replicate as replicate
from spec_tests.cpp_front_end.threads import use_threads
from spec_tests.harness.conformance import clauses

#: The error of a test whose call should have raised an error.
NOT_RAISED = pytest.fail.Exception
#: A test of a clause; the function that violates the clause; the values of parameters of the test;
#: the class of the error with which the test fails.
WRONG = []


def violates(test, error=AssertionError, **parameters):
    """Return a decorator that adds a wrong function of the front end to ``WRONG``."""

    def decorate(function):
        WRONG.append((test, function, parameters, error))
        return function

    return decorate


def replaced_by(function):
    """Return the name of the replaced function, found by the name of the third parameter."""
    third = list(inspect.signature(function).parameters)[2]
    return {"devices": "replicate", "inputs": "parallel_apply", "batch": "data_parallel"}[third]


def clause_of(test):
    return next(mark.args[0] for mark in test.pytestmark if mark.name == "clause")


@violates(replicate.test_replicas_share_no_memory, kind="linear")
@violates(replicate.test_replicas_do_not_update_buffers_of_the_module)
def replicate_with_module_first(real, module, devices):
    return [module, *real.replicate(module, devices[1:])]


@violates(replicate.test_replicas_have_equal_tensors_on_their_devices, kind="linear")
def replicate_on_reversed_devices(real, module, devices):
    return real.replicate(module, devices[::-1])


@violates(replicate.test_each_tensor_has_one_reduction_node, kind="linear")
@violates(replicate.test_parameter_that_only_one_replica_uses_raises_in_backward, error=NOT_RAISED)
def replicate_one_by_one(real, module, devices):
    return [real.replicate(module, [device])[0] for device in devices]


@violates(replicate.test_parameter_that_no_replica_uses_gets_no_gradient)
def replicate_with_zero_gradients(real, module, devices):
    for parameter in module.parameters().values():
        parameter.grad = torch.zeros_like(parameter)
    return real.replicate(module, devices)


@violates(replicate.test_cpp_double_backward_is_refused, error=NOT_RAISED, count=1)
@violates(replicate.test_tied_weight_is_two_tensors_in_a_replica)
@violates(replicate.test_empty_device_list_returns_no_replicas)
def replicate_without_copies(real, module, devices):
    return [module] * max(len(devices), 1)


@violates(parallel_apply.test_first_error_in_time_is_raised, first=2)
@violates(parallel_apply.test_error_is_raised_after_all_modules_end)
def apply_one_by_one(real, modules, inputs, devices):
    pairs = zip(modules, inputs, strict=True)
    return [real.parallel_apply([module], [each], devices)[0] for module, each in pairs]


@violates(parallel_apply.test_error_keeps_its_text)
def apply_and_wrap_errors(real, modules, inputs, devices):
    try:
        return real.parallel_apply(modules, inputs, devices)
    except ValueError as error:
        raise ValueError(f"Caught in a replica: {error}") from None


@violates(parallel_apply.test_cpp_outputs_are_moved_to_the_given_devices)
@violates(parallel_apply.test_without_the_devices_argument_outputs_are_on_the_input_devices)
def apply_without_moving_outputs(real, modules, inputs, devices):
    return [module(each) for module, each in zip(modules, inputs, strict=True)]


@violates(parallel_apply.test_device_of_a_module_is_not_made_current)
def apply_with_first_device_current(real, modules, inputs, devices):
    with torch.accelerator.device_index(devices[0].index):
        return real.parallel_apply(modules, inputs, devices)


@violates(parallel_apply.test_fewer_inputs_or_devices_than_modules_are_refused, error=NOT_RAISED)
def apply_to_shortest_sequence(real, modules, inputs, devices):
    count = min(map(len, (modules, inputs, devices or modules)))
    return real.parallel_apply(modules[:count], inputs[:count], devices and devices[:count])


@violates(parallel_apply.test_empty_list_of_modules_returns_no_outputs, error=IndexError)
def apply_refusing_no_modules(real, modules, inputs, devices):
    if not modules:
        raise IndexError("no modules")


@violates(data_parallel.test_one_device_moves_the_module)
@violates(data_parallel.test_one_device_updates_the_buffers)
@violates(data_parallel.test_outputs_on_the_cpu_are_refused, error=NOT_RAISED)
def run_a_replica(real, module, batch, devices, output_device, dim):
    replicas = real.replicate(module, devices[:1])
    return replicas[0](batch.to(devices[0]))


@violates(data_parallel.test_a_call_on_two_devices_does_not_update_the_buffers)
@violates(data_parallel.test_missing_devices_are_refused_without_cuda, error=NOT_RAISED)
@violates(data_parallel.test_arguments_that_scatter_refuses_are_refused)
def run_the_module(real, module, batch, devices, output_device, dim):
    return module(batch)


@violates(data_parallel.test_output_is_on_the_output_device, count=2, slot=None)
@violates(data_parallel.test_output_device_defaults_to_the_first_device, count=2)
def gather_on_last_device(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, devices[-1], dim)


@violates(data_parallel.test_surplus_devices_get_no_replica, error=RuntimeError)
def replicate_on_all_devices(real, module, batch, devices, output_device, dim):
    real.replicate(module, devices)
    return real.data_parallel(module, batch, devices, output_device, dim)


@violates(data_parallel.test_cpp_scalar_outputs_become_a_vector)
def average_outputs(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, output_device, dim).mean()


@violates(data_parallel.test_scalar_outputs_that_require_grad_are_refused, error=NOT_RAISED)
def detach_input(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch.detach(), devices, output_device, dim)


class PatchedFrontEnd:
    """The real front end with one wrong function."""

    def __init__(self, real, function):
        self._real = real
        setattr(self, replaced_by(function), lambda *args: function(real, *args))

    def __getattr__(self, name):
        return getattr(self._real, name)


@pytest.mark.parametrize(
    ("test", "function", "parameters", "error"), WRONG, ids=[row[0].__name__ for row in WRONG]
)
def test_a_front_end_that_violates_a_clause_fails_the_test_of_the_clause(
    topology, test, function, parameters, error
):
    topology.require(distinct=2)
    front_end = PatchedFrontEnd(loader.load_extension(topology), function)
    fixtures = {"front_end": front_end, "topology": topology, "four_threads": None, **parameters}
    arguments = {name: fixtures[name] for name in inspect.signature(test).parameters}
    with use_threads(4), pytest.raises(error):
        test(**arguments)


def test_every_cpp_clause_is_violated_by_a_buggy_front_end():
    names = {name for name in clauses.load() if name.startswith("cpp.")}
    # cpp_front_end/test_buckets.py shows instead that torch.nn.parallel violates this clause.
    names.remove("cpp.replicate.early-reduction")
    assert {clause_of(test) for test, *_ in WRONG} == names
