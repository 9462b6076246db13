"""Every fact of the C++ front end is told apart from a front end that lacks it.

The facts concern no target, so no mutant of impl can break them. Each wrong front end here differs
from the real one in one function, which is given the real one first.
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


def shares_the_first(real, module, devices):
    return [module, *real.replicate(module, devices[1:])]


def turns_devices_round(real, module, devices):
    return real.replicate(module, devices[::-1])


def replicates_one_by_one(real, module, devices):
    return [real.replicate(module, [device])[0] for device in devices]


def leaves_a_gradient_of_zero(real, module, devices):
    for parameter in module.parameters().values():
        parameter.grad = torch.zeros_like(parameter)
    return real.replicate(module, devices)


def copies_nothing(real, module, devices):
    return [module] * max(len(devices), 1)


def applies_one_by_one(real, modules, inputs, devices):
    pairs = zip(modules, inputs, strict=True)
    return [real.parallel_apply([module], [each], devices)[0] for module, each in pairs]


def rewraps(real, modules, inputs, devices):
    try:
        return real.parallel_apply(modules, inputs, devices)
    except ValueError as error:
        raise ValueError(f"Caught in a replica: {error}") from None


def moves_nothing(real, modules, inputs, devices):
    return [module(each) for module, each in zip(modules, inputs, strict=True)]


def makes_the_device_current(real, modules, inputs, devices):
    with torch.accelerator.device_index(devices[0].index):
        return real.parallel_apply(modules, inputs, devices)


def cuts_to_the_shortest(real, modules, inputs, devices):
    count = min(map(len, (modules, inputs, devices or modules)))
    return real.parallel_apply(modules[:count], inputs[:count], devices and devices[:count])


def refuses_nothing_to_do(real, modules, inputs, devices):
    if not modules:
        raise IndexError("no modules")


def runs_a_clone(real, module, batch, devices, output_device, dim):
    replicas = real.replicate(module, devices[:1])
    return replicas[0](batch.to(devices[0]))


def runs_the_module(real, module, batch, devices, output_device, dim):
    return module(batch)


def ends_on_the_last_device(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, devices[-1], dim)


def replicates_everywhere(real, module, batch, devices, output_device, dim):
    real.replicate(module, devices)
    return real.data_parallel(module, batch, devices, output_device, dim)


def averages_scalars(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, output_device, dim).mean()


def needs_no_gradient(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch.detach(), devices, output_device, dim)


@dataclass(frozen=True)
class Wrong:
    """A front end that lacks a fact.

    Args:
        test: The test of the fact.
        change: The function that is wrong.
        parameters: What the test is parametrised with.
        error: How the test fails, where not by an assertion.
    """

    test: Callable[..., None]
    change: Callable[..., Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    error: type[BaseException] = AssertionError

    @property
    def clause(self):
        return next(mark.args[0] for mark in self.test.pytestmark if mark.name == "clause")

    @property
    def function(self):
        """The name of the function that is changed, by its arguments."""
        first = list(inspect.signature(self.change).parameters)[1:3]
        names = {"devices": "replicate", "inputs": "parallel_apply", "batch": "data_parallel"}
        return names[first[1]]


ONE_KIND = {"kind": "linear"}
WRONG = [
    Wrong(replicate.test_every_replica_has_memory_of_its_own, shares_the_first, ONE_KIND),
    Wrong(
        replicate.test_every_replica_is_on_its_device_with_equal_tensors,
        turns_devices_round,
        ONE_KIND,
    ),
    Wrong(replicate.test_no_replica_updates_the_buffers_of_the_module, shares_the_first),
    Wrong(
        replicate.test_the_copies_of_one_tensor_share_a_node_and_no_two_tensors_do,
        replicates_one_by_one,
        ONE_KIND,
    ),
    Wrong(
        replicate.test_gradients_of_gradients_are_refused,
        copies_nothing,
        {"count": 1},
        error=pytest.fail.Exception,
    ),
    Wrong(
        replicate.test_a_parameter_that_no_replica_used_has_no_gradient,
        leaves_a_gradient_of_zero,
    ),
    Wrong(
        replicate.test_a_parameter_that_one_replica_used_ends_backward,
        replicates_one_by_one,
        error=pytest.fail.Exception,
    ),
    Wrong(replicate.test_a_tied_weight_has_two_memories_in_a_replica, copies_nothing),
    Wrong(replicate.test_no_devices_give_no_replicas, copies_nothing),
    Wrong(parallel_apply.test_the_error_raised_is_the_earliest, applies_one_by_one, {"early": 2}),
    Wrong(parallel_apply.test_an_error_waits_for_the_others, applies_one_by_one),
    Wrong(parallel_apply.test_the_error_is_not_rewrapped, rewraps),
    Wrong(parallel_apply.test_outputs_are_moved_to_the_given_devices, moves_nothing),
    Wrong(parallel_apply.test_without_devices_outputs_are_moved_to_their_inputs, moves_nothing),
    Wrong(parallel_apply.test_the_given_device_is_not_made_current, makes_the_device_current),
    Wrong(
        parallel_apply.test_other_numbers_of_inputs_or_devices_are_refused,
        cuts_to_the_shortest,
        error=pytest.fail.Exception,
    ),
    Wrong(parallel_apply.test_no_modules_give_no_outputs, refuses_nothing_to_do, error=IndexError),
    Wrong(data_parallel.test_on_one_device_the_callers_module_is_moved_there, runs_a_clone),
    Wrong(data_parallel.test_on_one_device_buffers_are_updated, runs_a_clone),
    Wrong(data_parallel.test_on_two_devices_buffers_are_not_updated, runs_the_module),
    Wrong(
        data_parallel.test_outputs_end_on_the_output_device,
        ends_on_the_last_device,
        {"count": 2, "slot": None},
    ),
    Wrong(
        data_parallel.test_the_output_device_is_the_first_by_default,
        ends_on_the_last_device,
        {"count": 2},
    ),
    Wrong(
        data_parallel.test_devices_beyond_the_number_of_chunks_get_no_replica,
        replicates_everywhere,
        error=RuntimeError,
    ),
    Wrong(data_parallel.test_scalars_become_a_vector, averages_scalars),
    Wrong(
        data_parallel.test_scalars_that_require_a_gradient_are_refused,
        needs_no_gradient,
        error=pytest.fail.Exception,
    ),
    Wrong(
        data_parallel.test_without_cuda_the_devices_must_be_given,
        runs_the_module,
        error=pytest.fail.Exception,
    ),
    Wrong(data_parallel.test_what_scatter_refuses_is_refused, runs_the_module),
    Wrong(
        data_parallel.test_outputs_on_the_cpu_are_not_gathered,
        runs_a_clone,
        error=pytest.fail.Exception,
    ),
]


class FrontEnd:
    """The real front end with one function changed."""

    def __init__(self, real, wrong):
        self._real = real
        setattr(self, wrong.function, lambda *args: wrong.change(real, *args))

    def __getattr__(self, name):
        return getattr(self._real, name)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.test.__name__)
def test_a_front_end_that_lacks_the_fact_is_noticed(topology, wrong):
    topology.require(distinct=2)
    fixtures = {"front_end": FrontEnd(loader.load_for(topology), wrong), "topology": topology}
    fixtures |= {"four_threads": None, **wrong.parameters}
    arguments = {name: fixtures[name] for name in inspect.signature(wrong.test).parameters}
    with use_threads(4), pytest.raises(wrong.error):
        wrong.test(**arguments)


def test_every_fact_has_a_front_end_that_lacks_it():
    facts = {name for name in clauses.load() if name.startswith("cpp.")}
    # How a late reduction looks, the reference shows in the tests of systems.early-reduction.
    assert {wrong.clause for wrong in WRONG} == facts - {"cpp.replicate.early-reduction"}
