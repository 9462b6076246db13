"""impl._device.device: what may be written for a device, and what is current."""

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


def bare(topology):
    return topology.accelerator


def test_the_accelerator_is_named(topology):
    assert device_module.accelerator_type() == topology.accelerator


def test_all_devices_are_listed_by_ordinal(topology):
    assert [device.index for device in device_module.all_devices()] == list(
        range(torch.accelerator.device_count())
    )


@pytest.mark.parametrize("spell", [str, torch.device, lambda device: device.index])
def test_every_spelling_names_the_same_device(topology, spell):
    device = last_device(topology)
    assert device_module.as_device(spell(device)) == device


@pytest.mark.parametrize("spelling", CPU_SPELLINGS, ids=repr)
def test_the_cpu_is_spelt_with_or_without_index(topology, spelling):
    assert device_module.is_cpu(spelling)
    assert device_module.as_device(spelling) == torch.device("cpu")
    assert device_module.as_device_or_current(spelling) == torch.device("cpu")


@pytest.mark.parametrize("spelling", CPU_SPELLINGS, ids=repr)
def test_the_cpu_has_no_ordinal(topology, spelling):
    with pytest.raises(ValueError) as caught:
        device_module.device_index(spelling)
    assert str(caught.value) == f"Expected a non cpu device, but got: {spelling}"


def test_an_accelerator_without_index_is_refused(topology):
    with pytest.raises(ValueError) as caught:
        device_module.as_device(bare(topology))
    assert str(caught.value) == WITHOUT_INDEX + bare(topology)


def test_none_has_no_ordinal():
    with pytest.raises(ValueError) as caught:
        device_module.device_index(None)
    assert str(caught.value) == WITHOUT_INDEX + "None"


def test_a_negative_ordinal_is_refused(topology):
    with pytest.raises(RuntimeError) as caught:
        device_module.as_device(-1)
    assert str(caught.value) == "Expected non-negative device index, but got -1"


def test_a_bad_string_is_refused(topology):
    with pytest.raises(RuntimeError, match="Invalid device string: '0'"):
        device_module.as_device("0")


@pytest.mark.parametrize("spell", [lambda name: None, str, torch.device])
def test_what_names_no_ordinal_means_the_current_device(topology, spell):
    device = last_device(topology)
    with torch.accelerator.device_index(device.index):
        assert device_module.as_device_or_current(spell(bare(topology))) == device


def test_use_device_is_undone(topology):
    before = torch.accelerator.current_device_index()
    with device_module.use_device(last_device(topology)):
        assert device_module.current_device() == last_device(topology)
    assert torch.accelerator.current_device_index() == before


def test_use_device_leaves_the_current_one_for_the_cpu(topology):
    before = torch.accelerator.current_device_index()
    with device_module.use_device(torch.device("cpu")):
        assert torch.accelerator.current_device_index() == before


def test_no_streams_touch_no_device(monkeypatch):
    for name in "current_device_index", "set_device_index":
        monkeypatch.setattr(torch.accelerator, name, None)
    stream_module.set_current_streams([])


def test_a_device_whose_stream_is_current_is_not_switched_to(topology, monkeypatch):
    # On CUDA that would begin a context, which takes memory, on a device that nobody uses.
    streams = [*map(stream_module.current_stream, dict.fromkeys(topology.devices))]
    monkeypatch.setattr(torch.accelerator, "set_stream", None)
    stream_module.set_current_streams(streams)


def test_what_needs_an_accelerator_is_refused_without_one(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert device_module.accelerator_type() is None
    for call in lambda: device_module.device_at(0), device_module.current_device:
        with pytest.raises(RuntimeError, match="accelerator device when none is available"):
            call()


def test_an_accelerator_that_does_not_work_is_none(topology, monkeypatch):
    module = torch.get_device_module(bare(topology))
    monkeypatch.setattr(module, "is_available", lambda: False)
    device_module._usable_type.cache_clear()
    assert device_module.accelerator_type() is None
    device_module._usable_type.cache_clear()


def test_use_stream_is_undone(topology):
    device = last_device(topology)
    before = stream_module.current_stream(device)
    stream = torch.Stream(device)
    with stream_module.use_stream(stream):
        assert stream_module.current_stream(device) == stream
        assert torch.accelerator.current_device_index() == device.index
    assert stream_module.current_stream(device) == before


def test_without_accelerator_there_is_only_the_cpu():
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


def test_a_driver_is_asked_once_whether_it_works(topology, monkeypatch):
    asked = []
    module = torch.get_device_module(bare(topology))
    monkeypatch.setattr(module, "is_available", lambda: asked.append(0) or True)
    device_module._usable_type.cache_clear()
    assert [device_module.accelerator_type() for _ in range(3)] == [bare(topology)] * 3
    assert len(asked) == 1


def test_minus_one_is_the_cpu_as_a_target_only():
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        assert device_module.as_target(-1) == torch.device("cpu")
    with warnings.catch_warnings(action="error"):
        assert device_module.as_target(-1, warns=False) == torch.device("cpu")
        assert device_module.as_target("cpu") == torch.device("cpu")


@pytest.mark.parametrize("kind", [None, "mps", "cuda", "sim"])
def test_an_accelerator_of_one_device_numbers_none(monkeypatch, kind):
    monkeypatch.setattr(device_module, "accelerator_type", lambda: kind)
    assert device_module.numbered_type() == (None if kind == "mps" else kind)


def test_a_device_has_one_side_stream(topology, monkeypatch):
    device, made, stream = last_device(topology), [], torch.Stream
    monkeypatch.setattr(stream_module, "_side_streams", {})
    first = stream_module.side_stream(device)
    monkeypatch.setattr(torch, "Stream", lambda device: made.append(device) or stream(device))
    assert stream_module.side_stream(device) is first
    assert made == []
    assert first.device == device
    assert first != stream_module.current_stream(device)
