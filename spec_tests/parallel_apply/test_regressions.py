"""Past defects of parallel_apply, with version, symptom and cause."""

import pytest
import torch
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.side_streams import DELAY, on_side_streams
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.queued_work import queue_work
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.exceptions import ExceptionSpec
from spec_tests.strategies.failing_modules import FailingCall, error_and_modules
from spec_tests.strategies.parallel_apply import ordinals
from spec_tests.strategies.probe_modules import Double


class Echo(nn.Module):
    """A module that returns its arguments."""

    def forward(self, *args, **kwargs):
        return args, kwargs


@clause("parallel_apply.errors.rewrapped")
def test_the_original_exception_object_is_not_raised(target, topology):
    """PyTorch 1.0 (#18055): the worker's exception was raised without the replica's number."""
    call = FailingCall({1: ExceptionSpec(ValueError)}, (0, 1), (0, 1))
    found, modules = error_and_modules(call, target, topology)
    assert found is not modules[1].raised
    assert str(found).startswith("Caught ValueError in replica 1 on device ")


@clause("parallel_apply.errors.refusing-constructor")
@pytest.mark.parametrize("constructor", ["two", "keyword", "nothing"])
def test_a_constructor_with_other_arguments_does_not_hide_the_error(target, topology, constructor):
    """PyTorch 1.4 (#34130, #44631): the TypeError of the constructor replaced the error."""
    call = FailingCall({0: ExceptionSpec(Exception, constructor)}, (0, 1), (0, 1))
    found, _ = error_and_modules(call, target, topology)
    assert type(found) is RuntimeError
    assert str(found).startswith("Caught Generated in replica 0 on device ")


@clause("parallel_apply.errors.refusing-constructor")
def test_a_constructor_that_checks_its_text_does_not_hide_the_error(target, topology):
    """PyTorch 1.9 (#58131): only a TypeError of the constructor was handled, no other error."""
    call = FailingCall({0: ExceptionSpec(Exception, "picky")}, (0, 1), (0, 1))
    found, _ = error_and_modules(call, target, topology)
    assert type(found) is RuntimeError
    assert "failure of module 0" in str(found)


@clause("parallel_apply.errors.key-error")
def test_the_text_of_a_key_error_has_several_lines(target, topology):
    """PyTorch 1.0 (#16647): a KeyError showed the repr of its text, on one line."""
    call = FailingCall({0: ExceptionSpec(KeyError)}, (0, 1), (0, 1))
    found, _ = error_and_modules(call, target, topology)
    assert len(str(found).splitlines()) > 3


@clause("parallel_apply.arguments")
@pytest.mark.parametrize("value", [{"a": 1}, "text", {1, 2}, None, 7], ids=repr)
def test_inputs_other_than_tensors_are_passed_on(target, baselines, topology, value):
    """PyTorch 0.1 (#1809, #1857): inputs had to be Variables, or tuples or lists of Variables."""
    call = PublicCall(
        "parallel_apply.parallel_apply",
        {
            "modules": [Echo(), Echo()],
            "inputs": [value, value],
            "devices": ordinals(topology, (0, 1)),
        },
    )
    checks.agree(call, target, baselines, topology)


@clause("parallel_apply.arguments")
def test_a_tensor_is_not_unpacked_along_its_rows(target, topology):
    """PyTorch 0.1 (#1157): a tensor was unpacked into as many arguments as it has rows."""
    x = torch.ones(2, 3, device=topology.device(0))
    found = target.parallel_apply.parallel_apply([Echo()], [x], devices=[x.device.index])
    assert len(found[0][0]) == 1
    assert found[0][0][0] is x


@clause("parallel_apply.lengths")
def test_surplus_devices_are_refused(target, topology):
    """PyTorch 2.9 (#162573): arguments were silently cut to the length of the shortest."""
    with pytest.raises(AssertionError, match="modules 2 is not equal to the number of devices 3"):
        target.parallel_apply.parallel_apply(
            [Echo(), Echo()], [1, 2], devices=ordinals(topology, range(3))
        )


@clause("parallel_apply.state.current-stream")
def test_modules_wait_for_the_callers_queued_work(target, topology):
    """PyTorch 1.11 (#78824): workers used the default stream and read inputs too early."""
    inputs = [torch.zeros(1 << 20, device=device) for device in topology.take(2)]
    with on_side_streams(topology):
        for x in inputs:
            queue_work(x.device, DELAY)
            x.fill_(1.0)
        found = target.parallel_apply.parallel_apply(
            [Double()] * 2, inputs, devices=[x.device.index for x in inputs]
        )
        totals = [float(each.sum()) for each in found]
    assert totals == [2.0 * (1 << 20)] * 2
