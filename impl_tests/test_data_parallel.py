"""impl.data_parallel: attributes, outputs, ``Whole`` without an accelerator, freed inputs."""

import sys
import weakref

import torch
from torch import nn

from impl import DataParallel, Whole

#: The module ``impl.data_parallel``. The attribute ``data_parallel`` of impl is the function.
MODULE = sys.modules["impl.data_parallel"]


class ReturnArguments(nn.Module):
    """A module that returns its arguments."""

    def forward(self, *inputs, **kwargs):
        return inputs, kwargs


class Constant(nn.Module):
    """A module that returns its input and a constant."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x, self.value


def test_forward_gets_the_value_inside_whole_without_an_accelerator(monkeypatch):
    monkeypatch.setattr(MODULE, "choose_devices", lambda *_: None)
    x = torch.ones(2)
    (found,), kwargs = DataParallel(ReturnArguments())(Whole(x), y=Whole(x))
    assert found is x
    assert kwargs["y"] is x


def test_only_outputs_on_the_first_device_are_moved_to_the_output_device(topology):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    on_cpu = torch.ones(2)
    moved, kept = DataParallel(Constant(on_cpu), [first], second)(torch.ones(2, device=first))
    assert moved.device == second
    assert kept is on_cpu


def test_output_list_is_not_copied_if_its_tensors_need_no_move(topology):
    output = [torch.ones(2, device=topology.device(0)), torch.ones(2)]
    assert DataParallel(Constant(output), topology.take(1))(torch.ones(2))[1] is output


def test_in_turn_is_an_instance_attribute_only_if_given(topology):
    devices = topology.take(2)
    assert "in_turn" not in vars(DataParallel(ReturnArguments(), devices))
    assert vars(DataParallel(ReturnArguments(), devices, in_turn=True))["in_turn"] is True


class ReferringModule(nn.Module):
    """A module that keeps weak references to its inputs."""

    def __init__(self):
        super().__init__()
        self.inputs = []

    def forward(self, x):
        self.inputs.append(weakref.ref(x))
        return 2 * x


def test_input_chunks_are_freed_before_outputs_are_gathered(topology):
    module, alive = ReferringModule(), []

    class Wrapper(DataParallel):
        def gather(self, outputs, output_device):
            alive.extend(reference() is not None for reference in module.inputs)
            return super().gather(outputs, output_device)

    with torch.no_grad():
        Wrapper(module, topology.take(2))(torch.ones(4))
    assert alive == [False, False]


class DoublesInputs(DataParallel):
    """A wrapper whose scatter doubles each input."""

    def scatter(self, inputs, kwargs, device_ids):
        return super().scatter([2 * each for each in inputs], kwargs, device_ids)


def test_overridden_scatter_is_called_for_a_single_device(topology):
    wrapped = DoublesInputs(nn.Identity(), topology.take(1))
    assert wrapped(torch.ones(2)).tolist() == [2.0, 2.0]


def test_output_list_on_the_cpu_is_not_copied_if_the_output_device_is_minus_one():
    output = [torch.ones(2)]
    assert DataParallel(Constant(output), ["cpu"], -1)(torch.ones(2))[1] is output
