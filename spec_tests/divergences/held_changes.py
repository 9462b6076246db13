"""Changes that held replicas refuse: each gives a part of the error's text."""

import copy
from typing import Any

from torch import nn


def parameter_in_place(wrapper: Any) -> str:
    """As an optimizer does."""
    wrapper.module[0].weight.add_(1)
    return r"Parameter '0\.weight' has changed"


def other_memory(wrapper: Any) -> str:
    """As ``Module.to`` does."""
    bias = wrapper.module[1][0].bias
    bias.data = bias.data.clone()
    return r"Parameter '1\.0\.bias' has changed"


def other_parameter(wrapper: Any) -> str:
    """Another tensor of the same values."""
    wrapper.module[0].bias = nn.Parameter(wrapper.module[0].bias.detach().clone())
    return r"other parameters, '0\.bias',"


def no_parameter(wrapper: Any) -> str:
    """One that was there is None."""
    wrapper.module[0].bias = None
    return r"other parameters, '0\.bias',"


def one_more_parameter(wrapper: Any) -> str:
    """One that was not there."""
    wrapper.module.register_parameter("scale", nn.Parameter(wrapper.module[0].bias.clone()))
    return "other parameters, 'scale',"


def one_more_buffer(wrapper: Any) -> str:
    """One that was not there."""
    wrapper.module[1].register_buffer("scale", wrapper.module[0].bias.clone())
    return r"other buffers, '1\.scale',"


def training_mode(wrapper: Any) -> str:
    """The whole module."""
    wrapper.train()
    return r"The module has been switched to train\(\)"


def training_mode_of_one(wrapper: Any) -> str:
    """One module below it."""
    wrapper.module[1][1].train()
    return r"Module '1\.1' has been switched to train\(\)"


def other_child(wrapper: Any) -> str:
    """One module below it is another one."""
    wrapper.module[1][1] = nn.Identity()
    return r"other modules, '1\.1',"


def other_order(wrapper: Any) -> str:
    """Two modules below it have changed places."""
    inner = wrapper.module[1]._modules
    inner["0"] = inner.pop("0")
    return r"other modules, '1\.1', '1\.0',"


def one_child_less(wrapper: Any) -> str:
    """A module below it is gone."""
    del wrapper.module[1][1]
    return r"other modules, '1\.1',"


def other_module(wrapper: Any) -> str:
    """The module is another one."""
    wrapper.module = copy.deepcopy(wrapper.module)
    return "The module is another one"


def fewer_devices(wrapper: Any) -> str:
    """One device less."""
    wrapper.device_ids = wrapper.device_ids[:2]
    return r"The devices, \[.*\], have become"


def other_devices(wrapper: Any) -> str:
    """The same ones in another order."""
    wrapper.device_ids = [wrapper.device_ids[0], *wrapper.device_ids[:0:-1]]
    return r"The devices, \[.*\], have become"


CHANGES = [
    parameter_in_place,
    other_memory,
    other_parameter,
    no_parameter,
    one_more_parameter,
    one_more_buffer,
    training_mode,
    training_mode_of_one,
    other_child,
    other_order,
    one_child_less,
    other_module,
    fewer_devices,
    other_devices,
]
