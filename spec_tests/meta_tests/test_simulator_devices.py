"""Which device and which stream is current: in contexts, in threads, in the backward pass."""

import threading

import pytest
import torch

pytestmark = pytest.mark.usefixtures("sim")


@pytest.fixture(autouse=True)
def _start_on_device_zero():
    torch.accelerator.set_device_index(0)
    yield
    torch.accelerator.set_device_index(0)


def in_thread(function):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(function()))
    thread.start()
    thread.join()
    return seen[0]


def test_torch_knows_the_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert torch.accelerator.device_count() == torch.sim.device_count() == 4
    assert torch.get_device_module("sim") is torch.sim
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_the_module_describes_each_device():
    properties = torch.sim.get_device_properties(3)
    assert torch.sim.get_device_name(3) == properties.name == "Simulated accelerator 3"
    assert properties.total_memory > 0
    assert properties.multi_processor_count > 0
    assert torch.sim.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.sim.is_available()
    assert torch.sim.is_initialized()
    assert not torch.sim._is_in_bad_fork()


@pytest.mark.parametrize("wanted", [2, "sim:2", torch.device])
def test_contexts_set_the_device_and_restore_it(wanted):
    wanted = torch.device("sim:2") if wanted is torch.device else wanted
    torch.sim.set_device(1)
    with torch.sim.device(wanted):
        assert torch.sim.current_device() == 2
        assert str(torch.empty(1, device="sim").device) == "sim:2"
    assert torch.sim.current_device() == 1


def test_context_of_nothing_changes_nothing():
    torch.sim.set_device(1)
    with torch.sim.device(None):
        assert torch.sim.current_device() == 1


def test_devices_of_other_types_are_refused():
    with pytest.raises(ValueError, match="expected a sim device, but got cpu"):
        torch.sim.set_device("cpu")


def test_kernels_do_not_need_the_device_to_be_current():
    x = torch.ones(3, device="sim:3")
    assert str((x + 1).device) == str(torch.empty_like(x).device) == "sim:3"
    assert torch.accelerator.current_device_index() == 0


def test_each_thread_has_its_own_device_and_stream():
    before, stream = torch.accelerator.current_stream(1), torch.Stream("sim:1")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_device_index() == 1
    assert in_thread(torch.accelerator.current_device_index) == 0
    assert in_thread(lambda: torch.accelerator.current_stream(1)) != stream
    assert torch.accelerator.current_stream(1) == stream
    torch.accelerator.set_stream(torch.Stream("sim:1"))
    assert torch.accelerator.current_stream(1) != stream
    torch.accelerator.set_stream(before)


def test_a_stream_is_current_within_its_context():
    stream = torch.Stream("sim:2")
    before = torch.accelerator.current_stream(2)
    with stream:
        assert torch.accelerator.current_stream() == torch.sim.current_stream(2) == stream
        assert torch.accelerator.current_device_index() == 2
        torch.ones(3, device="sim:2").record_stream(stream)
    assert torch.accelerator.current_stream(2) == before
    assert torch.accelerator.current_device_index() == 0


def test_streams_are_distinct_and_idle():
    first, second = torch.Stream("sim:1"), torch.Stream("sim:1", priority=-1)
    assert first != second
    assert first.device == torch.device("sim:1")
    second.wait_stream(first)
    first.synchronize()
    assert first.query()


def test_events_are_recorded_waited_for_and_timed():
    stream = torch.Stream("sim:1")
    begin, end = (torch.Event("sim:1", enable_timing=True) for _ in range(2))
    begin.record(stream)
    end.record(stream)
    end.synchronize()
    assert end.query()
    assert begin.elapsed_time(end) >= 0
    torch.Stream("sim:2").wait_event(end)


def test_record_stream_wants_a_stream_of_sim():
    with pytest.raises(RuntimeError):
        torch.ones(3, device="sim:1").record_stream(torch.Stream(device="cpu"))


def test_backward_runs_in_one_thread_a_device_with_the_device_current():
    seen = {}

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            ordinal = torch.accelerator.current_device_index()
            seen[grad.device.index] = (ordinal, threading.get_ident())
            return grad

    x = torch.ones(3, requires_grad=True)
    sum(Watch.apply(x.to(f"sim:{index}")).sum().cpu() for index in (1, 2, 3)).backward()
    assert {index: ordinal for index, (ordinal, _) in seen.items()} == {1: 1, 2: 2, 3: 3}
    threads = {thread for _, thread in seen.values()}
    assert len(threads) == 3
    assert threading.get_ident() not in threads


def test_backward_runs_on_the_stream_of_the_forward_pass():
    seen = []
    x = torch.ones(3, device="sim:1", requires_grad=True)
    stream = torch.Stream("sim:1")
    torch.accelerator.synchronize(1)
    with stream:
        y = x * 2
        y.register_hook(lambda grad: None)
        y.grad_fn.register_prehook(lambda _: seen.append(torch.accelerator.current_stream(1)))
    stream.synchronize()
    y.sum().backward()
    assert seen == [stream]
