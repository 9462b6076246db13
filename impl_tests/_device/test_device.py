"""impl._device.device and stream: conversion of device arguments, current devices and streams."""

import os
import subprocess
import sys
import warnings

import pytest
import torch

from impl._device import device as device_module
from impl._device import stream as stream_module

CPU_SPELLINGS = ["cpu", "cpu:0", torch.device("cpu")]
WITHOUT_INDEX = "Expected a torch.device with a specified index or an integer, but got:"


def last_device(topology):
    return topology.devices[-1]


def type_only(topology):
    return topology.accelerator


def test_accelerator_type_is_the_topologys(topology):
    assert device_module.accelerator_type() == topology.accelerator


def test_all_devices_are_in_order_of_ordinals(topology):
    assert [device.index for device in device_module.all_devices()] == list(
        range(torch.accelerator.device_count())
    )


@pytest.mark.parametrize("spell", [str, torch.device, lambda device: device.index])
def test_every_spelling_names_the_same_device(topology, spell):
    device = last_device(topology)
    assert device_module.as_device(spell(device)) == device


@pytest.mark.parametrize("spelling", CPU_SPELLINGS, ids=repr)
def test_every_spelling_of_the_cpu_is_the_cpu(topology, spelling):
    assert device_module.is_cpu(spelling)
    assert device_module.as_device(spelling) == torch.device("cpu")
    assert device_module.as_device_or_current(spelling) == torch.device("cpu")


@pytest.mark.parametrize("spelling", CPU_SPELLINGS, ids=repr)
def test_ordinal_of_the_cpu_raises(topology, spelling):
    with pytest.raises(ValueError) as caught:
        device_module.device_index(spelling)
    assert str(caught.value) == f"Expected a non cpu device, but got: {spelling}"


def test_type_only_raises(topology):
    with pytest.raises(ValueError) as caught:
        device_module.as_device(type_only(topology))
    assert str(caught.value) == WITHOUT_INDEX + type_only(topology)


def test_ordinal_of_none_raises():
    with pytest.raises(ValueError) as caught:
        device_module.device_index(None)
    assert str(caught.value) == WITHOUT_INDEX + "None"


def test_negative_ordinal_raises(topology):
    with pytest.raises(RuntimeError) as caught:
        device_module.as_device(-1)
    assert str(caught.value) == "Expected non-negative device index, but got -1"


def test_invalid_string_raises(topology):
    with pytest.raises(RuntimeError, match="Invalid device string: '0'"):
        device_module.as_device("0")


@pytest.mark.parametrize("spell", [lambda name: None, str, torch.device])
def test_device_without_ordinal_is_the_current_device(topology, spell):
    device = last_device(topology)
    with torch.accelerator.device_index(device.index):
        assert device_module.as_device_or_current(spell(type_only(topology))) == device


def test_use_device_restores_the_current_device(topology):
    before = torch.accelerator.current_device_index()
    with device_module.use_device(last_device(topology)):
        assert device_module.current_device() == last_device(topology)
    assert torch.accelerator.current_device_index() == before


def test_use_device_ignores_the_cpu(topology):
    before = torch.accelerator.current_device_index()
    with device_module.use_device(torch.device("cpu")):
        assert torch.accelerator.current_device_index() == before


def test_empty_list_of_streams_touches_no_device(monkeypatch):
    for name in "current_device_index", "set_device_index":
        monkeypatch.setattr(torch.accelerator, name, None)
    stream_module.set_current_streams([])


def test_current_stream_is_not_set_again(topology, monkeypatch):
    # On CUDA the switch would create a context, which takes memory, on an unused device.
    streams = [*map(stream_module.current_stream, dict.fromkeys(topology.devices))]
    monkeypatch.setattr(torch.accelerator, "set_stream", None)
    stream_module.set_current_streams(streams)


def test_device_without_an_accelerator_raises(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert device_module.accelerator_type() is None
    for call in lambda: device_module.device_at(0), device_module.current_device:
        with pytest.raises(RuntimeError, match="accelerator device when none is available"):
            call()


def test_unavailable_accelerator_has_no_type(topology, monkeypatch):
    module = torch.get_device_module(type_only(topology))
    monkeypatch.setattr(module, "is_available", lambda: False)
    device_module._usable_type.cache_clear()
    assert device_module.accelerator_type() is None
    device_module._usable_type.cache_clear()


def test_use_stream_restores_the_current_stream(topology):
    device = last_device(topology)
    before = stream_module.current_stream(device)
    stream = torch.Stream(device)
    with stream_module.use_stream(stream):
        assert stream_module.current_stream(device) == stream
        assert torch.accelerator.current_device_index() == device.index
    assert stream_module.current_stream(device) == before


def test_process_without_an_accelerator_has_only_the_cpu():
    script = (
        "from impl._device import device as d\n"
        "print(d.accelerator_type(), d.all_devices(), d.as_device('cpu'))\n"
        "try: d.as_device(0)\n"
        "except RuntimeError as error: print(error)\n"
    )
    hidden = {"CUDA_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": ""}
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **hidden},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == [
        "None [] cpu",
        "Cannot access accelerator device when none is available.",
    ]


def test_target_minus_one_is_the_cpu_with_a_warning():
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        assert device_module.as_target(-1) == torch.device("cpu")
    with warnings.catch_warnings(action="error"):
        assert device_module.as_target(-1, warns=False) == torch.device("cpu")
        assert device_module.as_target("cpu") == torch.device("cpu")


@pytest.mark.parametrize("kind", [None, "mps", "cuda", "sim"])
def test_mps_has_no_indexed_devices(monkeypatch, kind):
    monkeypatch.setattr(device_module, "accelerator_type", lambda: kind)
    assert device_module.indexed_accelerator_type() == (None if kind == "mps" else kind)


def test_device_has_one_side_stream(topology, monkeypatch):
    device, created, stream = last_device(topology), [], torch.Stream
    monkeypatch.setattr(stream_module, "_side_streams", {})
    first = stream_module.side_stream(device)
    monkeypatch.setattr(torch, "Stream", lambda device: created.append(device) or stream(device))
    assert stream_module.side_stream(device) is first
    assert created == []
    assert first.device == device
    assert first != stream_module.current_stream(device)
