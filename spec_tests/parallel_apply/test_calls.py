"""parallel_apply: arguments, devices and results of the modules."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.refusals import refused
from spec_tests.checks.thread_order import TIMEOUT
from spec_tests.machine.clauses import clause, error_of
from spec_tests.parallel_apply.run_modules import Lambda, run
from spec_tests.strategies.calls import KeywordCall, device_lists
from spec_tests.strategies.parallel_apply import ordinals, parallel_apply_calls, passthrough_calls
from spec_tests.strategies.small_modules import CurrentDevice


def _call(modules, inputs, **options):
    arguments = {"modules": modules, "inputs": inputs, **options}
    return KeywordCall("parallel_apply.parallel_apply", arguments)


@clause("parallel_apply.order")
@given(call=passthrough_calls(inputs=st.integers(), keywords=st.just({})))
def test_results_are_in_the_order_of_the_modules(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.no-keyword-arguments")
@given(call=passthrough_calls(inputs=st.integers(), keywords=None))
def test_results_without_keyword_arguments_are_in_the_order_of_the_modules(
    target, baselines, topology, call
):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.keyword-arguments")
@given(call=passthrough_calls())
def test_each_module_gets_its_own_keyword_arguments(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.arguments")
@given(call=passthrough_calls(keywords=None))
def test_each_module_gets_its_own_arguments_and_only_sequences_are_unpacked(
    target, baselines, topology, call
):
    # PyTorch 0.1: a tensor was unpacked into its rows (#1157), and inputs had to be Variables, or
    # tuples or lists of Variables (#1809, #1857).
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.order")
@pytest.mark.parametrize(
    "value", [ValueError("text"), KeyboardInterrupt(), StopIteration], ids=repr
)
def test_modules_may_return_exceptions(target, topology, value):
    found = target.parallel_apply.parallel_apply(
        [lambda x: x] * 2, [value] * 2, devices=topology.take(2)
    )
    checks.same([each is value for each in found], [True, True])


@clause("parallel_apply.arguments")
def test_an_input_of_none_is_an_argument(target, topology):
    found = target.parallel_apply.parallel_apply(
        [lambda x="default": x] * 2, [None] * 2, devices=topology.take(2)
    )
    checks.same(found, [None, None])


@clause("parallel_apply.gradients")
@given(call=parallel_apply_calls())
def test_results_have_the_gradients_of_the_modules(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("parallel_apply.devices")
@given(devices=device_lists())
def test_devices_may_be_ordinals_devices_or_text(target, baselines, topology, devices):
    call = _call([CurrentDevice()] * len(devices), [()] * len(devices), devices=devices)
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.current-device-by-default")
@pytest.mark.parametrize("given_devices", [False, True], ids="devices={}".format)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_module_without_device_and_tensor_runs_on_the_current_device(
    target, baselines, topology, count, given_devices
):
    topology.require(distinct=2)
    devices = [None] * count if given_devices else None
    call = _call([CurrentDevice()] * count, [(), [], "text"][:count], devices=devices)
    with torch.accelerator.device_index(topology.device(1).index):
        checks.agree(call, target, baselines, topology)
        found = call.run(target, call.inputs(topology))
    assert found == [topology.device(1).index] * count


@clause("parallel_apply.no-such-device")
@pytest.mark.parametrize("devices", [[99], [0, 99], [99, 0]], ids=str)
def test_the_error_for_a_device_that_does_not_exist_names_it(target, topology, devices):
    modules = [CurrentDevice() for _ in devices]
    parallel_apply = target.parallel_apply.parallel_apply
    with pytest.raises(RuntimeError, match="99"):
        parallel_apply(modules, [()] * len(devices), devices=devices)
    here = topology.device(0).index
    assert parallel_apply(modules, [()] * len(devices), devices=[here] * len(devices)) == [
        here
    ] * len(devices)


@clause("parallel_apply.lengths")
@given(
    lengths=st.tuples(*[st.integers(1, 3)] * 3, st.none() | st.integers(1, 3)).filter(
        lambda lengths: len({*lengths} - {None}) > 1
    )
)
def test_arguments_of_different_lengths_are_refused(target, baselines, topology, lengths):
    # PyTorch 2.9: arguments were silently cut to the length of the shortest (#162573).
    modules, inputs, keywords, devices = lengths
    call = _call(
        [nn.Identity()] * modules,
        [1] * inputs,
        kwargs_tup=[{}] * keywords,
        devices=devices and ordinals(topology, range(devices)),
    )
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.no-modules")
@pytest.mark.parametrize("keywords", [None, []], ids="kwargs_tup={}".format)
@pytest.mark.parametrize("devices", [None, []], ids="devices={}".format)
def test_an_empty_list_of_modules_is_refused(target, topology, keywords, devices):
    call = _call([], [], kwargs_tup=keywords, devices=devices)
    refused(call, target, topology, error_of("parallel_apply.no-modules"))


@clause("parallel_apply.one-module")
def test_one_module_runs_in_the_callers_thread(target, topology):
    checks.same(
        run(target, topology, [Lambda(threading.current_thread)]), [threading.current_thread()]
    )


@clause("parallel_apply.at-the-same-time")
@pytest.mark.parametrize("count", [2, 3, 4, 100], ids="modules={}".format)
def test_modules_run_concurrently(target, topology, count):
    barrier = threading.Barrier(count, timeout=TIMEOUT)
    found = run(target, topology, [Lambda(barrier.wait) for _ in range(count)])
    assert sorted(found) == list(range(count))


@clause("parallel_apply.hazards.many-modules")
def test_three_hundred_modules_run_in_one_call(target, topology):
    assert run(target, topology, [Lambda(int, str(i)) for i in range(300)]) == list(range(300))
