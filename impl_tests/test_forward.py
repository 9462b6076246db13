"""impl._forward: markers without devices, freed inputs, and refused tangents."""

import weakref

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.forward_ad import dual_level, make_dual
from torch.func import functional_call

from impl import DataParallel, Whole
from spec_tests.strategies.small_modules import Calls


@pytest.mark.usefixtures("no_devices")
def test_forward_gets_the_value_inside_whole_without_an_accelerator():
    x = torch.ones(2)
    (found,), kwargs = DataParallel(Calls(lambda _, *args, **kwargs: (args, kwargs)))(
        Whole(x), y=Whole(x)
    )
    assert found is x
    assert kwargs["y"] is x


def test_input_chunks_are_freed_before_outputs_are_gathered(topology):
    inputs, alive = [], []
    module = Calls(lambda _, x: inputs.append(weakref.ref(x)) or 2 * x)

    class Wrapper(DataParallel):
        def gather(self, outputs, output_device):
            alive.extend(reference() is not None for reference in inputs)
            return super().gather(outputs, output_device)

    with torch.no_grad():
        Wrapper(module, topology.take(2))(torch.ones(4))
    assert alive == [False, False]


def scale(module, x, shift=0):
    return module.linear(x) * module.scale + shift


def call_with_tangent(wrapper, place, x):
    """Call ``wrapper`` with a tangent of the argument or tensor ``place``."""

    def dual(tensor):
        return make_dual(tensor.detach(), torch.ones_like(tensor))

    if place == "input":
        return wrapper(dual(x))
    if place == "keyword":
        return wrapper(x, shift=dual(x))
    if place == "whole":
        return wrapper(x, shift=Whole(dual(x[0])))
    tensors = {place: dual(wrapper.get_parameter(place) if "linear" in place else x[0])}
    return functional_call(wrapper, tensors, (x,))


# PyTorch scripts the decompositions of forward-mode AD when it first needs them.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@given(
    slots=st.sampled_from([[0, 1], [0, 0, 0], [None, None]]),
    place=st.sampled_from(
        ["input", "keyword", "whole", "module.linear.weight", "module.linear.bias", "module.scale"]
    ),
    frozen=st.booleans(),
    with_grad=st.booleans(),
)
@example(slots=[0, 1], place="module.linear.weight", frozen=True, with_grad=True)
@example(slots=[0, 0, 0], place="whole", frozen=False, with_grad=False)
def test_a_tangent_of_forward_mode_ad_is_refused(topology, slots, place, frozen, with_grad):
    devices = topology.take(slots)
    net = Calls(scale, linear=nn.Linear(2, 2), scale=nn.Buffer(torch.ones(2)))
    net.to(devices[0]).requires_grad_(not frozen)
    x = torch.ones(6, 2, device=devices[0], requires_grad=True)
    with dual_level(), torch.set_grad_enabled(with_grad):
        with pytest.raises(NotImplementedError, match="forward-mode AD does not pass tangents"):
            call_with_tangent(DataParallel(net, devices), place, x)
        assert torch.allclose(DataParallel(net, devices)(x), net(x))
