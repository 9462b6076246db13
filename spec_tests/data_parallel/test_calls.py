"""data_parallel and DataParallel: arguments and outcomes of calls on any devices."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import nn

from spec_tests import checks
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.calls import DeviceAt, device_lists
from spec_tests.strategies.data_parallel import (
    FUNCTIONAL,
    DataParallelCall,
    NewModule,
    WeightedLeaves,
)
from spec_tests.strategies.small_modules import FailsFromLimit, OrdinalColumn
from spec_tests.strategies.tensors import TensorSpec

X = TensorSpec((4, 2), requires_grad=True)
ON_CPU = TensorSpec((4, 2), slot=None)
COMPLEX = TensorSpec((4, 2), torch.complex64, requires_grad=True)


class ArgumentCounts(nn.Module):
    """A module that returns a row: len(args), len(kwargs), current device, its own device."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, *args, **kwargs):
        ordinal = torch.accelerator.current_device_index()
        counts = [len(args), len(kwargs), ordinal, self.weight.device.index]
        return torch.tensor([counts], device=self.weight.device)


class WeightedSum(nn.Module):
    """A module that returns a 0-dim tensor."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return (x * self.weight).sum()


class ComplexAffine(nn.Module):
    """An affine map with a complex parameter and a complex buffer.

    It returns the complex rows, and a view of their real parts. The test is not-run if the devices
    lack complex numbers.
    """

    def __init__(self):
        super().__init__()
        capabilities.require("complex64")
        self.weight = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))
        self.register_buffer("shift", torch.tensor([1j, 2.0 + 0j]))

    def forward(self, x):
        rows = x * self.weight + self.shift
        return rows, rows.real


class BufferOnCpu(OrdinalColumn):
    """A module whose buffer stays on the CPU when the module is moved."""

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.offset = self.offset.cpu()
        return self


def call_of(module_class, *args, settings=(), devices=None, output=None, dim=0, **kwargs):
    module = NewModule(module_class, settings)
    return DataParallelCall(module, args, kwargs, devices, output, dim)


#: For each clause: calls. The devices are drawn if a call has none.
CALLS = {
    "data_parallel.no-arguments": [call_of(ArgumentCounts)],
    "data_parallel.keywords-alone": [call_of(WeightedLeaves, x=X)],
    "data_parallel.inputs-from-the-cpu": [call_of(WeightedLeaves, ON_CPU, y=[ON_CPU])],
    "data_parallel.no-rows": [call_of(WeightedLeaves, TensorSpec((0, 2), requires_grad=True))],
    "data_parallel.complex": [call_of(ComplexAffine, x) for x in (COMPLEX, X)],
    "data_parallel.devices.checked-at-the-call": [
        call_of(BufferOnCpu, X, devices=[DeviceAt(0)] * 2)
    ],
    # Before special cases, which fail without the argument, too: -x then names these clauses.
    "data_parallel.devices.output": [
        call_of(OrdinalColumn, X, devices=[DeviceAt(1), DeviceAt(0)], output=DeviceAt(0))
    ],
    "data_parallel.split-dimension": [
        call_of(OrdinalColumn, X, dim=1, devices=[DeviceAt(0), DeviceAt(1)])
    ],
    "data_parallel.devices.minus-one": [
        call_of(OrdinalColumn, X, devices=[DeviceAt(1), DeviceAt(0, "ordinal")], output=-1)
    ],
    "data_parallel.one-device.scalars": [call_of(WeightedSum, X, devices=[DeviceAt(1)])],
    "data_parallel.one-device.errors": [
        call_of(FailsFromLimit, X, settings=(0,), devices=[DeviceAt(1)])
    ],
    "data_parallel.errors": [
        call_of(FailsFromLimit, TensorSpec((rows, 1)), settings=(limit,))
        for rows, limit in ((1, 0), (4, 1), (8, 0), (8, 1), (8, 5))
    ],
    "data_parallel.scalars": [
        call_of(WeightedSum, X),
        call_of(WeightedSum, X, dim=1),
        call_of(WeightedSum, X, dim=1, devices=[DeviceAt(slot, "ordinal") for slot in (0, 1)]),
    ],
}
#: For each clause: calls of the class. Their outcome is known for targets that lack the function.
CALLS_OF_THE_CLASS = {
    # PyTorch 1.6 (#44873): a call without inputs crashed, because no device was selected.
    "data_parallel.no-arguments": [call_of(ArgumentCounts)],
    # PyTorch 0.1 (#1169): a call without positional arguments failed.
    "data_parallel.keywords-alone": [call_of(WeightedLeaves, x=X)],
    # PyTorch 2.10 (#135462): complex tensors reached the replicas as pairs of real numbers.
    "data_parallel.complex": [call_of(WeightedLeaves, COMPLEX)],
    "data_parallel.no-tensors": [
        call_of(ArgumentCounts, 1, "text"),
        call_of(ArgumentCounts, 1, "text", flag=True),
        call_of(ArgumentCounts, 1, flag=None),
    ],
    "data_parallel.devices.checked-at-the-call": [
        call_of(BufferOnCpu, X, devices=[DeviceAt(0)] * 2)
    ],
}


@cases("call", CALLS)
@given(devices=device_lists(), functional=FUNCTIONAL)
def test_calls_have_the_outcome_of_the_reference(
    target, baselines, topology, call, devices, functional
):
    call = replace(call, devices=call.devices or devices, functional=functional)
    checks.agree(call, target, baselines, topology)


@cases("call", CALLS_OF_THE_CLASS)
@given(devices=device_lists())
def test_calls_of_the_class_have_the_outcome_of_the_reference(
    target, baselines, topology, call, devices
):
    checks.agree(replace(call, devices=call.devices or devices), target, baselines, topology)


#: A batch without a gradient.
ROWS = TensorSpec((4, 2))


@clause("data_parallel.inputs")
@pytest.mark.parametrize(
    "inputs", [None, (), ROWS, [ROWS] * 2, {"x": ROWS}, (ROWS, ROWS), "text"], ids=repr
)
@pytest.mark.parametrize("keywords", [{}, {"y": ROWS}], ids="module_kwargs={}".format)
def test_only_a_tuple_is_unpacked_into_several_arguments(
    target, baselines, topology, inputs, keywords
):
    module, devices = NewModule(ArgumentCounts), (DeviceAt(0), DeviceAt(1))
    call = DataParallelCall(module, inputs, keywords, devices, functional=True)
    checks.agree(call, target, baselines, topology)
