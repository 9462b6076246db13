"""The module torch.sim, streams, and the threads and streams of the backward pass."""

import threading

import pytest
import torch

pytestmark = pytest.mark.usefixtures("sim")


@pytest.fixture(autouse=True)
def _start_on_device_zero():
    torch.accelerator.set_device_index(0)
    yield
    torch.accelerator.set_device_index(0)


def test_devices_have_a_name_memory_and_processors():
    properties = torch.sim.get_device_properties(3)
    assert torch.sim.get_device_name(3) == properties.name == "Simulated accelerator 3"
    assert properties.total_memory > 0
    assert properties.multi_processor_count > 0
    assert torch.sim.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.sim.is_available()
    assert torch.sim.is_initialized()
    assert not torch.sim._is_in_bad_fork()


@pytest.mark.parametrize("device", [2, "sim:2", torch.device])
def test_device_context_sets_and_restores_the_device(device):
    device = torch.device("sim:2") if device is torch.device else device
    torch.sim.set_device(1)
    with torch.sim.device(device):
        assert torch.sim.current_device() == 2
        assert str(torch.empty(1, device="sim").device) == "sim:2"
    assert torch.sim.current_device() == 1


def test_device_context_of_none_keeps_the_device():
    torch.sim.set_device(1)
    with torch.sim.device(None):
        assert torch.sim.current_device() == 1


def test_set_device_rejects_other_device_types():
    with pytest.raises(ValueError, match="expected a sim device, but got cpu"):
        torch.sim.set_device("cpu")


def test_streams_may_have_a_priority_and_record_a_use():
    stream = torch.Stream("sim:1", priority=-1)
    with stream:
        assert torch.sim.current_stream(1) == stream
        torch.ones(3, device="sim:1").record_stream(stream)
    stream.synchronize()
    assert stream.query()


def test_record_stream_rejects_streams_of_other_device_types():
    with pytest.raises(RuntimeError):
        torch.ones(3, device="sim:1").record_stream(torch.Stream(device="cpu"))


def test_backward_runs_in_one_thread_per_device():
    device_and_thread = {}

    class RecordThread(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            ordinal = torch.accelerator.current_device_index()
            device_and_thread[grad.device.index] = (ordinal, threading.get_ident())
            return grad

    x = torch.ones(3, requires_grad=True)
    sum(RecordThread.apply(x.to(f"sim:{index}")).sum().cpu() for index in (1, 2, 3)).backward()
    assert {index: ordinal for index, (ordinal, _) in device_and_thread.items()} == {
        1: 1,
        2: 2,
        3: 3,
    }
    threads = {thread for _, thread in device_and_thread.values()}
    assert len(threads) == 3
    assert threading.get_ident() not in threads
