"""data_parallel and DataParallel: outputs of networks, arguments of replicas, and hooks."""

from collections import Counter
from dataclasses import replace

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks import wrapper_laws as laws
from spec_tests.machine import profiles
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import DeviceAt, build, device_lists
from spec_tests.strategies.data_parallel import (
    FUNCTIONAL,
    DataParallelCall,
    NewModule,
    nested_calls,
    network_calls,
    script_calls,
)
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.modules import Layer, ModuleSpec
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.tensors import TensorSpec

LISTS = ModuleSpec((Layer("lists"),))
CALL_OF_LISTS = DataParallelCall(
    LISTS, (LISTS.rows(3),), devices=[DeviceAt(0), DeviceAt(1)], functional=True
)
BRANCHES = ModuleSpec((Layer("branching"),))
#: The output of the first replica requires no gradient.
CALL_OF_BRANCHES = replace(CALL_OF_LISTS, module=BRANCHES, args=(BRANCHES.rows(3),))


class Twice(nn.Module):
    """A module that returns one tensor twice if its chunk begins with 0, else two tensors."""

    def forward(self, x):
        doubled = 2 * x
        return [doubled, doubled if bool(x.flatten()[0] == 0) else 3 * x]


class ExtentAdder(nn.Module):
    """A module that adds the weighted extents of its input, so that its output depends on them."""

    def forward(self, x):
        return x + sum(extent * 10**dim for dim, extent in enumerate(x.shape))


@clause("data_parallel.outputs")
@clause("data_parallel.gradients")
@example(call=CALL_OF_LISTS)
@example(call=CALL_OF_BRANCHES)
@given(
    call=network_calls(grads=(True,))
    | network_calls(kinds=tuple(ROW_WISE), grads=(False,))
    | network_calls(kinds=("branching", "linear"), grads=(True,))
)
def test_networks_have_the_outputs_and_gradients_of_the_reference(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("data_parallel.transparent")
@given(call=network_calls(grads=(True,)))
def test_a_wrapped_network_has_the_outputs_and_gradients_of_the_network(target, topology, call):
    found, expected = laws.run_wrapped_and_plain(call, target, topology)
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("data_parallel.arguments")
@clause("data_parallel.constants")
@given(call=nested_calls() | nested_calls(factors=(0.5, 3)))
def test_tensors_in_nested_arguments_are_scattered_and_constants_passed_on(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.outputs")
@given(devices=device_lists(min_size=2), functional=FUNCTIONAL)
def test_some_replicas_may_return_one_object_twice(
    target, baselines, topology, devices, functional
):
    rows = TensorSpec((len(devices), 2), requires_grad=True)
    call = DataParallelCall(NewModule(Twice), (rows,), {}, devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.split-dimension")
@given(
    dim=st.sampled_from([0, 1, 2, -1, -2, -3]),
    devices=st.lists(st.builds(DeviceAt, st.integers(0, 3)), min_size=2, max_size=4),
    functional=FUNCTIONAL,
)
def test_arguments_are_scattered_and_outputs_gathered_along_dim(
    target, baselines, topology, dim, devices, functional
):
    tensor = TensorSpec((3, 4, 5), requires_grad=True)
    call = DataParallelCall(
        NewModule(ExtentAdder), (tensor,), {}, devices, None, dim, functional=functional
    )
    checks.agree(call, target, baselines, topology)


@clause("data_parallel.constants")
@given(devices=device_lists(min_size=2))
def test_every_replica_gets_the_same_constant_object(target, topology, devices):
    constant, found = object(), []
    module = Calls(lambda _, x, *args, **kwargs: found.extend([*args, *kwargs.values()]) or x)
    wrapped = target.data_parallel.DataParallel(module, build(devices, topology))
    wrapped(torch.ones(len(devices)), constant, found=constant)
    is_constant = [argument is constant for argument in found]
    checks.same(is_constant, [True] * (2 * len(devices)), place="identity")


@clause("data_parallel.script-modules")
@profiles.divide_examples(4)
@given(call=script_calls())
def test_script_modules_have_the_outputs_of_the_reference(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("data_parallel.hooks")
@given(devices=device_lists(), rows=st.integers(4, 8))
@example(devices=[DeviceAt(0)], rows=4)
def test_wrapper_hooks_see_the_batch_and_module_hooks_see_chunks(target, topology, devices, rows):
    calls = []

    def register(module, name):
        module.register_forward_pre_hook(
            lambda _, args: calls.append(f"before the {name}: {len(args[0])} rows")
        )
        module.register_forward_hook(
            lambda _, args, output: calls.append(f"after the {name}: {len(output)} rows")
        )

    module = nn.Linear(2, 1).to(topology.device(devices[0].slot))
    wrapped = target.data_parallel.DataParallel(module, build(devices, topology))
    register(module, "module")
    wrapped(torch.ones(rows, 2))
    register(wrapped, "wrapper")
    wrapped(torch.ones(rows, 2))
    chunks = [f"module: {len(chunk)} rows" for chunk in torch.ones(rows).chunk(len(devices))]
    seen = [*chunks, *chunks, f"wrapper: {rows} rows"]
    expected = [f"{when} the {each}" for when in ("before", "after") for each in seen]
    found, wanted = (dict(sorted(Counter(each).items())) for each in (calls, expected))
    checks.same(found, wanted, f"two calls with {rows} rows, {devices}")
