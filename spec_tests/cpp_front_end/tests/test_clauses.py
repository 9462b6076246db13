"""A front end that violates a clause about the C++ front end fails a test of the clause.

The clauses describe PyTorch's C++ front end, not a target, so no perturbation of impl can violate
them. Each wrong front end differs from the real one in one function, whose first argument is the
real front end.
"""

import inspect
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from spec_tests.cpp_front_end import loader, test_cpp
from spec_tests.harness.conformance import clauses

#: For each clause: a function that violates it.
WRONG = {}


def violates(*names):
    """Return a decorator that adds a wrong function for each of the clauses to ``WRONG``."""

    def decorate(function):
        WRONG.update({f"cpp.{name}": function for name in names})
        return function

    return decorate


@violates("replicate.buffers-are-lost", "replicate.clones")
def replicate_with_module_first(real, module, devices):
    return [module, *real.replicate(module, devices[1:])]


@violates("replicate.one-node-a-parameter", "replicate.used-by-some")
def replicate_one_by_one(real, module, devices):
    return [real.replicate(module, [device])[0] for device in devices]


@violates("replicate.unused-parameters")
def replicate_with_zero_gradients(real, module, devices):
    for parameter in module.parameters().values():
        parameter.grad = torch.zeros_like(parameter)
    return real.replicate(module, devices)


@violates("replicate.no-double-backward", "replicate.ties-come-apart", "replicate.no-devices")
def replicate_without_copies(real, module, devices):
    return [module] * max(len(devices), 1)


@violates("parallel_apply.first-in-time", "parallel_apply.all-end")
def apply_one_by_one(real, modules, inputs, devices):
    pairs = zip(modules, inputs, strict=True)
    return [real.parallel_apply([module], [each], devices)[0] for module, each in pairs]


@violates("parallel_apply.error-is-itself")
def apply_and_wrap_errors(real, modules, inputs, devices):
    try:
        return real.parallel_apply(modules, inputs, devices)
    except ValueError as error:
        raise ValueError(f"Caught in a replica: {error}") from None


@violates("parallel_apply.outputs-are-moved", "parallel_apply.outputs-follow-inputs")
def apply_without_moving_outputs(real, modules, inputs, devices):
    return [module(each) for module, each in zip(modules, inputs, strict=True)]


@violates("parallel_apply.current-device")
def apply_with_first_device_current(real, modules, inputs, devices):
    with torch.accelerator.device_index(devices[0].index):
        return real.parallel_apply(modules, inputs, devices)


@violates("parallel_apply.lengths")
def apply_to_shortest_sequence(real, modules, inputs, devices):
    count = min(map(len, (modules, inputs, devices or modules)))
    return real.parallel_apply(modules[:count], inputs[:count], devices and devices[:count])


@violates("parallel_apply.nothing")
def apply_refusing_no_modules(real, modules, inputs, devices):
    if not modules:
        raise IndexError("no modules")


@violates("data_parallel.one-device-moves-the-module", "data_parallel.one-device-keeps-buffers")
def run_a_replica(real, module, batch, devices, output_device, dim):
    return real.replicate(module, devices[:1])[0](batch.to(devices[0]))


@violates("data_parallel.buffers-are-lost", "data_parallel.refusals")
def run_the_module(real, module, batch, devices, output_device, dim):
    return module(batch)


@violates("data_parallel.output-device")
def gather_on_last_device(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, output_device or devices[-1], dim)


@violates("data_parallel.surplus-devices")
def replicate_on_all_devices(real, module, batch, devices, output_device, dim):
    real.replicate(module, devices)
    return real.data_parallel(module, batch, devices, output_device, dim)


@violates("data_parallel.scalars")
def average_outputs(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch, devices, output_device, dim).mean()


@violates("data_parallel.scalars-with-gradients")
def detach_input(real, module, batch, devices, output_device, dim):
    return real.data_parallel(module, batch.detach(), devices, output_device, dim)


def make_wrong(real, function):
    """Return the real front end with one wrong function, found by its third parameter."""
    third = list(inspect.signature(function).parameters)[2]
    name = {"devices": "replicate", "inputs": "parallel_apply", "batch": "data_parallel"}[third]
    functions = {each: getattr(real, each) for each in dir(real) if not each.startswith("_")}
    return SimpleNamespace(**functions | {name: partial(function, real)})


def tests_of(name):
    """Yield the tests of a clause as functions of a front end and a topology."""
    for test in vars(test_cpp).values():
        marks = getattr(test, "pytestmark", [])
        if any(mark.name == "clause" and name in mark.args for mark in marks):
            is_of_kinds = "kind" in inspect.signature(test).parameters
            yield partial(test, kind="linear") if is_of_kinds else test
    for each, call, error, text in test_cpp.REFUSALS.values():
        if each == name:
            yield partial(test_cpp.test_cpp_refuses, call=call, error=error, text=text)


def fails(test, front_end, topology):
    try:
        test(front_end=front_end, topology=topology)
    except (Exception, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize("name", WRONG)
def test_a_front_end_that_violates_a_clause_fails_a_test_of_the_clause(topology, name):
    topology.require(distinct=2)
    front_end = make_wrong(loader.load_extension(topology), WRONG[name])
    assert any(fails(test, front_end, topology) for test in tests_of(name))


def test_each_clause_is_violated():
    names = {name for name in clauses.load() if name.startswith("cpp.")}
    # test_systems.py shows instead that torch.nn.parallel violates this clause.
    names.remove("cpp.replicate.early-reduction")
    assert set(WRONG) == names
