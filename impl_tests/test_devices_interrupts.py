"""An interrupt while impl restores the current device, a stream or grad mode loses nothing."""

import pytest
import torch

from impl import _copies, comm
from impl._devices import call_on_device, call_on_stream, call_on_streams, current_stream_by_device
from impl._settings import call_with_setting


class InterruptedSetter:
    """A setter whose first call that sets ``value`` raises an error, without effect."""

    def __init__(self, setter, value, error=KeyboardInterrupt):
        self.setter, self.value, self.error = setter, value, error
        self.is_interrupted = False

    def __call__(self, value):
        if value == self.value and not self.is_interrupted:
            self.is_interrupted = True
            raise self.error
        self.setter(value)


def interrupt(monkeypatch, owner, name, value):
    setter = InterruptedSetter(getattr(owner, name), value)
    monkeypatch.setattr(owner, name, setter)
    return setter


@pytest.fixture
def devices(topology):
    return topology.devices


def test_an_interrupted_call_restores_the_current_device(devices, monkeypatch):
    before = torch.accelerator.current_device_index()
    other = next(device for device in devices if device.index != before)
    setter = interrupt(monkeypatch, torch.accelerator, "set_device_index", before)
    with pytest.raises(KeyboardInterrupt):
        call_on_device(other, int)
    assert setter.is_interrupted
    assert torch.accelerator.current_device_index() == before


def test_an_interrupted_call_restores_the_current_stream(devices, monkeypatch):
    device = devices[0]
    before = torch.accelerator.current_stream(device)
    setter = interrupt(monkeypatch, torch.accelerator, "set_stream", before)
    with pytest.raises(KeyboardInterrupt):
        call_on_stream(torch.Stream(device), int)
    assert setter.is_interrupted
    assert torch.accelerator.current_stream(device) == before


def test_an_interrupted_call_restores_the_streams_of_all_devices(devices, monkeypatch):
    before = current_stream_by_device(devices)
    device = torch.accelerator.current_device_index()
    setter = interrupt(monkeypatch, torch.accelerator, "set_stream", [*before.values()][-1])
    streams = {torch.Stream(device): stream for device, stream in before.items()}
    with pytest.raises(KeyboardInterrupt):
        call_on_streams(streams, int)
    assert setter.is_interrupted
    assert current_stream_by_device(devices) == before
    assert torch.accelerator.current_device_index() == device


def test_an_interrupted_reduction_restores_grad_mode(devices, monkeypatch):
    lists = [[torch.ones(2, device=device)] for device in devices]
    setter = interrupt(monkeypatch, torch, "set_grad_enabled", True)
    with pytest.raises(KeyboardInterrupt):
        comm.reduce_add_coalesced(lists)
    assert setter.is_interrupted
    assert torch.is_grad_enabled()


def test_a_function_without_grad_mode_keeps_its_arguments_and_result():
    def describe(left, *, right):
        return left, right, torch.is_grad_enabled()

    assert _copies.without_grad(describe)(1, right=2) == (1, 2, False)
    assert torch.is_grad_enabled()


def test_a_function_that_is_called_on_the_cpu_gets_all_arguments():
    found = call_on_device(torch.device("cpu"), lambda left, *, right: (left, right), 1, right=2)
    assert found == (1, 2)


def test_a_signal_handler_that_ends_the_process_does_not_stop_the_restoration():
    values = []
    setter = InterruptedSetter(values.append, "before", SystemExit)
    with pytest.raises(SystemExit):
        call_with_setting(setter, "value", "before", int)
    assert values == ["value", "before"]
