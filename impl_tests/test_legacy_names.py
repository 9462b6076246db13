"""impl._legacy_names: names that other packages import, doing what the reference's do."""

import importlib
import inspect
import time
from collections import namedtuple

import pytest
import torch
from torch.nn.parallel import _functions as reference_functions
from torch.nn.parallel import scatter_gather as reference_scatter_gather

import impl._functions
from impl import functions, scatter_gather
from impl._device.stream import current_stream
from spec_tests.harness.concurrency.stream_log import streams_of

Pair = namedtuple("Pair", "left right")

#: Functions that others import, by module.
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


def arguments(function):
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


class Alike(tuple):
    """A tuple with the marks of a named tuple."""

    _fields = ()

    def _asdict(self):
        return {}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("functions", "_get_stream"),
        ("_functions", "_get_stream"),
        *(("_functions", name) for name in functions.__all__),
        *(("scatter_gather", name) for name in ("Gather", "Scatter")),
        *(("scatter_gather", name) for name in ("_is_namedtuple", "is_namedtuple")),
        *FUNCTIONS,
    ],
)
def test_names_that_others_import_are_there(module, name):
    assert callable(getattr(importlib.import_module(f"impl.{module}"), name))


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_names_that_others_import_take_the_same_arguments(module, name):
    packages = ["torch.nn.parallel", "impl"]
    theirs, ours = (
        getattr(importlib.import_module(f"{each}.{module}"), name) for each in packages
    )
    count = len(inspect.signature(theirs).parameters)
    assert arguments(ours)[:count] == arguments(theirs)


def test_function_class_is_autograds():
    assert impl._functions.Function is reference_functions.Function is torch.autograd.Function


def test_there_is_no_list_of_streams_to_begin_with():
    assert impl._functions._streams is None


def test_functions_are_the_same_under_both_names():
    names = [*functions.__all__, "_get_stream"]
    found = [getattr(impl._functions, name) is getattr(functions, name) for name in names]
    assert found == [True] * len(names)


def test_a_device_has_one_side_stream(topology):
    for device in topology.devices:
        stream = functions._get_stream(device)
        assert stream is functions._get_stream(torch.device(str(device)))
        assert stream.device == reference_functions._get_stream(device).device == device
        assert stream != current_stream(device)


def test_copies_from_the_cpu_run_on_that_stream(topology):
    devices = topology.take(2)
    used = streams_of(lambda: functions.Scatter.apply(devices, None, 0, torch.ones(4)))
    assert used == [*map(functions._get_stream, devices)]


def test_cpu_has_no_stream():
    cpu = torch.device("cpu")
    assert functions._get_stream(cpu) is reference_functions._get_stream(cpu) is None


@pytest.mark.parametrize("module", [functions, reference_functions])
def test_device_of_another_type_raises(topology, module):
    other = torch.device("meta")
    with pytest.raises(AssertionError) as caught:
        module._get_stream(other)
    kind = topology.accelerator
    text = f"Expected current accelerator type {kind} to match device type meta"
    assert str(caught.value) == text


def test_without_accelerator_there_is_no_stream(monkeypatch):
    monkeypatch.setattr(impl._legacy_names, "accelerator_type", lambda: None)
    assert functions._get_stream(torch.device("cuda:0")) is None


@pytest.mark.parametrize("name", ["is_namedtuple", "_is_namedtuple"])
@pytest.mark.parametrize(
    "value",
    [Pair(1, 2), (1, 2), Alike(), Pair, time.localtime(), torch.return_types.max((1, 2)), None],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore:.*is_namedtuple:FutureWarning")
def test_named_tuples_are_recognized_as_by_the_reference(name, value):
    found = getattr(scatter_gather, name)(value)
    assert found is getattr(reference_scatter_gather, name)(value)
