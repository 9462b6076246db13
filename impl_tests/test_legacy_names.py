"""Private names that other packages import from torch.nn.parallel."""

import importlib
import inspect

import pytest

#: Module -> the private functions that other packages import from it.
FUNCTIONS = {
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
    "scatter_gather": ["scatter_kwargs"],
}
#: Module -> the other names.
OTHERS = {
    "functions": ["_get_stream"],
    "scatter_gather": ["Gather", "Scatter", "_is_namedtuple", "is_namedtuple"],
}


def parameters(package, module, name):
    function = getattr(importlib.import_module(f"{package}.{module}"), name)
    found = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


@pytest.mark.parametrize("module", FUNCTIONS)
def test_private_functions_have_the_parameters_of_the_reference(module):
    for name in FUNCTIONS[module]:
        expected = parameters("torch.nn.parallel", module, name)
        assert parameters("impl", module, name)[: len(expected)] == expected


def test_other_names_exist():
    for module, names in OTHERS.items():
        imported = importlib.import_module(f"impl.{module}")
        assert [name for name in names if not callable(getattr(imported, name, None))] == []
