"""Private names that other packages import from torch.nn.parallel."""

import importlib
import inspect

import pytest

#: Module -> the private functions and the imported classes.
NAMES = {
    "_functions": ["_get_stream"],
    "comm": ["_get_device_index", "_handle_complex"],
    "data_parallel": ["_check_balance", "_get_available_device_type"],
    "parallel_apply": ["_get_device_index", "get_a_var"],
    "replicate": [
        "_broadcast_coalesced_reshape",
        "_get_device_index",
        "_init_script_module",
        "_is_jit_enabled",
        "_is_script_method",
        "_is_script_module",
        "_replicatable_module",
    ],
    "scatter_gather": ["Gather", "Scatter", "_is_namedtuple", "is_namedtuple", "scatter_kwargs"],
}


def parameters(package, module, name):
    member = getattr(importlib.import_module(f"{package}.{module}"), name)
    found = inspect.signature(member).parameters.values() if inspect.isfunction(member) else ()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


@pytest.mark.parametrize("module", NAMES)
def test_private_names_exist_with_the_parameters_of_the_reference(module):
    for name in NAMES[module]:
        expected = parameters("torch.nn.parallel", module, name)
        assert parameters("impl", module, name)[: len(expected)] == expected
