"""For each test of a C++ clause, a front end that violates the clause fails the test.

The clauses describe PyTorch's C++ front end, not a target, so no perturbation of impl can violate
them.
Each wrong front end differs from the real one in one function, whose first argument is the real
front end.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from spec_tests.cpp_front_end import loader
from spec_tests.cpp_front_end import test_data_parallel as data_parallel
from spec_tests.cpp_front_end import test_parallel_apply as parallel_apply
from spec_tests.cpp_front_end import test_replicate as replicate
from spec_tests.cpp_front_end.threads import use_threads
from spec_tests.harness.conformance import clauses


def replicate_with_module_first(real, module, devices):
    return [module, *real.replicate(module, devices[1:])]


def replicate_on_reversed_devices(real, module, devices):
    return real.replicate(module, devices[::-1])


def replicate_one_by_one(real, module, devices):
    return [real.replicate(module, [device])[0] for device in devices]


def replicate_with_zero_gradients(real, module, devices):
    for parameter in module.parameters().values():
        parameter.grad = torch.zeros_like(parameter)
    return real.replicate(module, devices)


def replicate_without_copies(real, module, devices):
    return [module] * max(len(devices), 1)


def apply_one_by_one(real, modules, inputs, devices):
    pairs = zip(modules, inputs, strict=True)
    return [real.parallel_apply([module], [each], devices)[0] for module, each in pairs]


def apply_and_wrap_errors(real, modules, inputs, devices):
    try:
        return real.parallel_apply(modules, inputs, devices)
    except ValueError as error:
        raise ValueError(f"Caught in a replica: {error}") from None


def apply_without_moving_outputs(real, modules, inputs, devices):
    return [module(each) for module, each in zip(modules, inputs, strict=True)]


def apply_with_first_device_current(real, modules, inputs, devices):
    with torch.accelerator.device_index(devices[0].index):
        return real.parallel_apply(modules, inputs, devices)


def apply_to_shortest_sequence(real, modules, inputs, devices):
    count = min(map(len, (modules, inputs, devices or modules)))
    return real.parallel_apply(modules[:count], inputs[:count], devices and devices[:count])


def apply_refusing_no_modules(real, modules, inputs, devices):
    if not modules:
        raise IndexError("no modules")


def run_a_replica(real, module, batch, devices, output_device, dim):
    replicas = real.replicate(module, devices[:1])
    return replicas[0](batch.to(devices[0]))


def run_the_module(real, module, batch, devices, output_device, dim):
    return module(batch)


def gather_on_last_device(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, devices[-1], dim)


def replicate_on_all_devices(real, module, batch, devices, output_device, dim):
    real.replicate(module, devices)
    return real.data_parallel(module, batch, devices, output_device, dim)


def average_outputs(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, output_device, dim).mean()


def detach_input(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch.detach(), devices, output_device, dim)


@dataclass(frozen=True)
class WrongFrontEnd:
    """A front end that violates a clause.

    Args:
        test: The test of the clause.
        function: The wrong function.
        parameters: Values of the test's parametrized arguments.
        error: The class of the error with which the test fails.
    """

    test: Callable[..., None]
    function: Callable[..., Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    error: type[BaseException] = AssertionError

    @property
    def clause(self):
        return next(mark.args[0] for mark in self.test.pytestmark if mark.name == "clause")

    @property
    def replaced(self):
        """The name of the replaced function, found by the name of the third parameter."""
        third = list(inspect.signature(self.function).parameters)[2]
        names = {"devices": "replicate", "inputs": "parallel_apply", "batch": "data_parallel"}
        return names[third]


LINEAR = {"kind": "linear"}
WRONG_FRONT_ENDS = [
    WrongFrontEnd(replicate.test_replicas_share_no_memory, replicate_with_module_first, LINEAR),
    WrongFrontEnd(
        replicate.test_replicas_have_equal_tensors_on_their_devices,
        replicate_on_reversed_devices,
        LINEAR,
    ),
    WrongFrontEnd(
        replicate.test_replicas_do_not_update_buffers_of_the_module, replicate_with_module_first
    ),
    WrongFrontEnd(
        replicate.test_each_tensor_has_one_reduction_node,
        replicate_one_by_one,
        LINEAR,
    ),
    WrongFrontEnd(
        replicate.test_cpp_double_backward_is_refused,
        replicate_without_copies,
        {"count": 1},
        error=pytest.fail.Exception,
    ),
    WrongFrontEnd(
        replicate.test_parameter_that_no_replica_uses_gets_no_gradient,
        replicate_with_zero_gradients,
    ),
    WrongFrontEnd(
        replicate.test_parameter_that_only_one_replica_uses_raises_in_backward,
        replicate_one_by_one,
        error=pytest.fail.Exception,
    ),
    WrongFrontEnd(
        replicate.test_tied_weight_is_two_tensors_in_a_replica, replicate_without_copies
    ),
    WrongFrontEnd(replicate.test_empty_device_list_returns_no_replicas, replicate_without_copies),
    WrongFrontEnd(
        parallel_apply.test_first_error_in_time_is_raised, apply_one_by_one, {"first": 2}
    ),
    WrongFrontEnd(parallel_apply.test_error_is_raised_after_all_modules_end, apply_one_by_one),
    WrongFrontEnd(parallel_apply.test_error_keeps_its_text, apply_and_wrap_errors),
    WrongFrontEnd(
        parallel_apply.test_cpp_outputs_are_moved_to_the_given_devices,
        apply_without_moving_outputs,
    ),
    WrongFrontEnd(
        parallel_apply.test_without_the_devices_argument_outputs_are_on_the_input_devices,
        apply_without_moving_outputs,
    ),
    WrongFrontEnd(
        parallel_apply.test_device_of_a_module_is_not_made_current, apply_with_first_device_current
    ),
    WrongFrontEnd(
        parallel_apply.test_fewer_inputs_or_devices_than_modules_are_refused,
        apply_to_shortest_sequence,
        error=pytest.fail.Exception,
    ),
    WrongFrontEnd(
        parallel_apply.test_empty_list_of_modules_returns_no_outputs,
        apply_refusing_no_modules,
        error=IndexError,
    ),
    WrongFrontEnd(data_parallel.test_one_device_moves_the_module, run_a_replica),
    WrongFrontEnd(data_parallel.test_one_device_updates_the_buffers, run_a_replica),
    WrongFrontEnd(
        data_parallel.test_a_call_on_two_devices_does_not_update_the_buffers, run_the_module
    ),
    WrongFrontEnd(
        data_parallel.test_output_is_on_the_output_device,
        gather_on_last_device,
        {"count": 2, "slot": None},
    ),
    WrongFrontEnd(
        data_parallel.test_output_device_defaults_to_the_first_device,
        gather_on_last_device,
        {"count": 2},
    ),
    WrongFrontEnd(
        data_parallel.test_surplus_devices_get_no_replica,
        replicate_on_all_devices,
        error=RuntimeError,
    ),
    WrongFrontEnd(data_parallel.test_cpp_scalar_outputs_become_a_vector, average_outputs),
    WrongFrontEnd(
        data_parallel.test_scalar_outputs_that_require_grad_are_refused,
        detach_input,
        error=pytest.fail.Exception,
    ),
    WrongFrontEnd(
        data_parallel.test_missing_devices_are_refused_without_cuda,
        run_the_module,
        error=pytest.fail.Exception,
    ),
    WrongFrontEnd(data_parallel.test_arguments_that_scatter_refuses_are_refused, run_the_module),
    WrongFrontEnd(
        data_parallel.test_outputs_on_the_cpu_are_refused,
        run_a_replica,
        error=pytest.fail.Exception,
    ),
]


class PatchedFrontEnd:
    """The real front end with one wrong function."""

    def __init__(self, real, wrong):
        self._real = real
        setattr(self, wrong.replaced, lambda *args: wrong.function(real, *args))

    def __getattr__(self, name):
        return getattr(self._real, name)


@pytest.mark.parametrize("wrong", WRONG_FRONT_ENDS, ids=lambda wrong: wrong.test.__name__)
def test_a_front_end_that_violates_a_clause_fails_the_test_of_the_clause(topology, wrong):
    topology.require(distinct=2)
    fixtures = {
        "front_end": PatchedFrontEnd(loader.load_extension(topology), wrong),
        "topology": topology,
    }
    fixtures |= {"four_threads": None, **wrong.parameters}
    arguments = {name: fixtures[name] for name in inspect.signature(wrong.test).parameters}
    with use_threads(4), pytest.raises(wrong.error):
        wrong.test(**arguments)


def test_every_cpp_clause_is_violated_by_a_buggy_front_end():
    names = {name for name in clauses.load() if name.startswith("cpp.")}
    # cpp_front_end/test_buckets.py shows instead that torch.nn.parallel violates this clause.
    names.remove("cpp.replicate.early-reduction")
    assert {wrong.clause for wrong in WRONG_FRONT_ENDS} == names
