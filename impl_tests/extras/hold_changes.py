"""Changes of a wrapper or its module after which a forward inside ``hold`` builds new replicas."""

import copy
from typing import Any

import torch
from torch import nn

from impl_tests.extras.frozen_layers import UnversionedSGD


def modify_parameter_in_place(wrapper: Any) -> None:
    """Change a parameter in place, as an optimizer does."""
    wrapper.module[0].weight.add_(1)


def step_optimizer(wrapper: Any) -> None:
    """Change a parameter by an optimizer that increases no version counter."""
    bias = wrapper.module[0].bias
    bias.grad = torch.ones_like(bias)
    UnversionedSGD([bias]).step()


def replace_parameter_memory(wrapper: Any) -> None:
    """Replace the memory of a parameter, as ``Module.to`` does."""
    bias = wrapper.module[1][0].bias
    bias.data = bias.data.clone()


def replace_parameter(wrapper: Any) -> None:
    """Replace a parameter by another tensor with the same values."""
    wrapper.module[0].bias = nn.Parameter(wrapper.module[0].bias.detach().clone())


def set_parameter_to_none(wrapper: Any) -> None:
    """Set a parameter to None."""
    wrapper.module[0].bias = None


def register_parameter_late(wrapper: Any) -> None:
    """Register a further parameter after the first forward."""
    wrapper.module.register_parameter("scale", nn.Parameter(wrapper.module[0].bias.clone()))


def register_buffer_late(wrapper: Any) -> None:
    """Register a further buffer after the first forward."""
    wrapper.module[1].register_buffer("scale", wrapper.module[0].bias.clone())


def switch_child_to_train(wrapper: Any) -> None:
    """Switch one child to training mode."""
    wrapper.module[1][1].train()


def replace_child(wrapper: Any) -> None:
    """Replace a child by another module."""
    wrapper.module[1][1] = nn.Identity()


def reorder_children(wrapper: Any) -> None:
    """Swap the order of two children."""
    inner = wrapper.module[1]._modules
    inner["0"] = inner.pop("0")


def delete_child(wrapper: Any) -> None:
    """Delete a child."""
    del wrapper.module[1][1]


def replace_module(wrapper: Any) -> None:
    """Replace the wrapped module by a copy."""
    wrapper.module = copy.deepcopy(wrapper.module)


def set_attribute(wrapper: Any) -> None:
    """Change an attribute."""
    wrapper.module[1][0].eps = 0.5


def set_class(wrapper: Any) -> None:
    """Change the class of a layer."""
    wrapper.module[1][1].__class__ = nn.Tanh


def set_forward(wrapper: Any) -> None:
    """Change the forward of one layer."""
    wrapper.module[1][1].forward = torch.square


def register_hook(wrapper: Any) -> None:
    """Register a hook."""
    wrapper.module[1][1].register_forward_hook(lambda *args: -args[-1])


def set_attribute_of_parameter(wrapper: Any) -> None:
    """Change an attribute of a parameter."""
    wrapper.module[0].weight.note = "set"


def change_set_of_names(wrapper: Any) -> None:
    """Register a buffer that ``state_dict`` leaves out."""
    wrapper.module[1].register_buffer("scale", wrapper.module[0].bias.detach(), persistent=False)


def replace_buffers(wrapper: Any) -> None:
    """Change, and replace, the values of buffers."""
    norm = wrapper.module[1][0]
    norm.running_mean.add_(1)
    norm.running_var = norm.running_var + 1


def change_settings(wrapper: Any) -> None:
    """Change a dictionary that the replicas share, and a list in it."""
    wrapper.module.settings["new"] = 1.0
    wrapper.module.settings["scale"].append(2.0)


#: The changes that the replicas see by themselves, and those of buffers.
KEEPING = [replace_buffers, change_settings]
#: All changes, one for each case of the test.
CHANGES = [
    modify_parameter_in_place,
    step_optimizer,
    replace_parameter_memory,
    replace_parameter,
    set_parameter_to_none,
    register_parameter_late,
    register_buffer_late,
    switch_child_to_train,
    replace_child,
    reorder_children,
    delete_child,
    replace_module,
    set_attribute,
    set_class,
    set_forward,
    register_hook,
    set_attribute_of_parameter,
    change_set_of_names,
]
