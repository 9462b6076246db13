"""impl._device.device: the runtime and the type of a device."""

import pytest
import torch

from impl._device import device as device_module


def test_the_accelerator_has_the_functions_of_torch_accelerator(topology):
    assert device_module.runtime(None) is torch.accelerator
    assert device_module.runtime(topology.accelerator) is torch.accelerator


def test_every_type_has_the_functions_of_torch_accelerator_if_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert device_module.runtime("xpu") is torch.accelerator


@pytest.mark.parametrize("convert", [str, torch.device])
def test_a_device_of_a_type_that_can_be_used_keeps_its_type(monkeypatch, convert):
    monkeypatch.setattr(device_module, "_is_usable", lambda kind: kind != "cpu")
    assert device_module.as_device_or_current(convert("xpu:1")) == torch.device("xpu", 1)


@pytest.mark.parametrize("convert", [str, torch.device])
def test_a_device_of_another_type_is_one_of_the_accelerator(topology, convert):
    assert device_module.as_device_or_current(convert("xpu:1")) == topology.device(1)


def test_devices_of_apple_have_no_streams(monkeypatch):
    monkeypatch.setattr(device_module, "_is_usable", lambda _: True)
    assert not device_module.has_streams(torch.device("mps", 0))
    assert device_module.has_streams(torch.device("xpu", 0))
