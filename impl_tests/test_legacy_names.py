"""Private names that other packages import from torch.nn.parallel."""

import importlib
import inspect

import pytest
import torch

from impl import functions

#: Private functions of torch.nn.parallel that other packages import: (module, name).
FUNCTIONS = [
    ("_functions", "_get_stream"),
    ("comm", "_get_device_index"),
    ("comm", "_handle_complex"),
    ("data_parallel", "_check_balance"),
    ("data_parallel", "_get_available_device_type"),
    ("parallel_apply", "_get_device_index"),
    ("parallel_apply", "get_a_var"),
    ("replicate", "_broadcast_coalesced_reshape"),
    ("replicate", "_get_device_index"),
    ("replicate", "_init_script_module"),
    ("replicate", "_is_jit_enabled"),
    ("replicate", "_is_script_method"),
    ("replicate", "_is_script_module"),
    ("replicate", "_replicatable_module"),
    ("scatter_gather", "scatter_kwargs"),
]


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("functions", "_get_stream"),
        *(("scatter_gather", name) for name in ("Gather", "Scatter")),
        *(("scatter_gather", name) for name in ("_is_namedtuple", "is_namedtuple")),
    ],
)
def test_legacy_name_exists(module, name):
    assert callable(getattr(importlib.import_module(f"impl.{module}"), name))


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_legacy_function_has_the_parameters_of_the_reference(module, name):
    expected, found = (
        parameters(getattr(importlib.import_module(f"{package}.{module}"), name))
        for package in ("torch.nn.parallel", "impl")
    )
    assert found[: len(expected)] == expected


def test_without_an_accelerator_get_stream_returns_none(monkeypatch):
    monkeypatch.setattr(functions, "accelerator_type", lambda: None)
    assert functions._get_stream(torch.device("cuda:0")) is None
