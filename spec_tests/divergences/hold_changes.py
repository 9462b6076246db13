"""Changes after which a forward inside ``hold`` raises an error.

Each function changes the wrapper or its module and returns the pattern of the expected error.
"""

import copy
from typing import Any

import torch
from torch import nn

from spec_tests.divergences.frozen_layers import UnversionedSGD

#: A regular expression that the text of the expected error matches.
ErrorPattern = str


def modify_parameter_in_place(wrapper: Any) -> ErrorPattern:
    """Change a parameter in place, as an optimizer does."""
    wrapper.module[0].weight.add_(1)
    return r"Parameter '0\.weight' has changed"


def step_optimizer(wrapper: Any) -> ErrorPattern:
    """Change a parameter by an optimizer that increases no version counter."""
    bias = wrapper.module[0].bias
    bias.grad = torch.ones_like(bias)
    UnversionedSGD([bias]).step()
    return r"Parameter '0\.bias' has changed"


def replace_parameter_memory(wrapper: Any) -> ErrorPattern:
    """Replace the memory of a parameter, as ``Module.to`` does."""
    bias = wrapper.module[1][0].bias
    bias.data = bias.data.clone()
    return r"Parameter '1\.0\.bias' has changed"


def replace_parameter(wrapper: Any) -> ErrorPattern:
    """Replace a parameter by another tensor with the same values."""
    wrapper.module[0].bias = nn.Parameter(wrapper.module[0].bias.detach().clone())
    return r"other parameters, '0\.bias',"


def set_parameter_to_none(wrapper: Any) -> ErrorPattern:
    """Set a parameter to None."""
    wrapper.module[0].bias = None
    return r"other parameters, '0\.bias',"


def register_parameter_late(wrapper: Any) -> ErrorPattern:
    """Register a further parameter after the first forward."""
    wrapper.module.register_parameter("scale", nn.Parameter(wrapper.module[0].bias.clone()))
    return "other parameters, 'scale',"


def register_buffer_late(wrapper: Any) -> ErrorPattern:
    """Register a further buffer after the first forward."""
    wrapper.module[1].register_buffer("scale", wrapper.module[0].bias.clone())
    return r"other buffers, '1\.scale',"


def switch_to_train(wrapper: Any) -> ErrorPattern:
    """Switch the whole module to training mode."""
    wrapper.train()
    return r"The module has been switched to train\(\)"


def switch_child_to_train(wrapper: Any) -> ErrorPattern:
    """Switch one child to training mode."""
    wrapper.module[1][1].train()
    return r"Module '1\.1' has been switched to train\(\)"


def replace_child(wrapper: Any) -> ErrorPattern:
    """Replace a child by another module."""
    wrapper.module[1][1] = nn.Identity()
    return r"other modules, '1\.1',"


def reorder_children(wrapper: Any) -> ErrorPattern:
    """Swap the order of two children."""
    inner = wrapper.module[1]._modules
    inner["0"] = inner.pop("0")
    return r"other modules, '1\.1', '1\.0',"


def delete_child(wrapper: Any) -> ErrorPattern:
    """Delete a child."""
    del wrapper.module[1][1]
    return r"other modules, '1\.1',"


def replace_module(wrapper: Any) -> ErrorPattern:
    """Replace the wrapped module by a copy."""
    wrapper.module = copy.deepcopy(wrapper.module)
    return "The module is another one"


def drop_device(wrapper: Any) -> ErrorPattern:
    """Drop the last device."""
    wrapper.device_ids = wrapper.device_ids[:2]
    return r"The devices, \[.*\], have become"


def reorder_devices(wrapper: Any) -> ErrorPattern:
    """Reverse the order of the devices after the first."""
    wrapper.device_ids = [wrapper.device_ids[0], *wrapper.device_ids[:0:-1]]
    return r"The devices, \[.*\], have become"


#: All changes, one for each case of the test.
CHANGES = [
    modify_parameter_in_place,
    step_optimizer,
    replace_parameter_memory,
    replace_parameter,
    set_parameter_to_none,
    register_parameter_late,
    register_buffer_late,
    switch_to_train,
    switch_child_to_train,
    replace_child,
    reorder_children,
    delete_child,
    replace_module,
    drop_device,
    reorder_devices,
]
