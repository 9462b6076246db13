"""impl._settings: pauses of the garbage collector, also in forked processes; interrupts."""

import gc

import pytest
import torch

from impl import _settings, comm
from impl._devices import call_on_device
from impl._settings import pause_gc
from impl._streams import call_on_stream, call_on_streams, current_stream_by_device
from spec_tests.checks.threads import call_in_thread


@pytest.fixture(params=[True, False], ids="enabled={}".format)
def enabled(request):
    """Enable or disable the garbage collector; yield whether it is enabled."""
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_collector_state_is_restored_when_the_last_overlapping_block_ends(enabled):
    first, second = pause_gc(), pause_gc()
    seen = []
    for block in (first, second):
        block.__enter__()
        seen.append(gc.isenabled())
    for block in (first, second):
        block.__exit__(None, None, None)
        seen.append(gc.isenabled())
    assert seen == [False, False, False, enabled]


@pytest.fixture
def pauses():
    """A new ``_Pauses`` object. The fixture restores the collector after the test."""
    was_enabled = gc.isenabled()
    yield _settings._Pauses()
    (gc.enable if was_enabled else gc.disable)()


def test_forked_child_ends_all_pauses(enabled, pauses):
    call_in_thread(lambda: pauses.begin(object()))
    assert not gc.isenabled()
    pauses.reset_after_fork()
    assert gc.isenabled() == enabled


@pytest.mark.usefixtures("enabled")
def test_fork_after_the_end_of_a_pause_does_not_enable_the_collector(pauses):
    pause = object()
    pauses.begin(pause)
    pauses.end(pause)
    gc.disable()
    pauses.reset_after_fork()
    assert not gc.isenabled()


def test_forked_child_can_pause_if_the_lock_was_held_at_the_fork(pauses):
    pause = object()
    pauses._lock.acquire()
    pauses.reset_after_fork()
    pauses.begin(pause)
    pauses.end(pause)


def interrupt(monkeypatch, holder, name, *, before):
    """Interrupt the next call of ``holder.name``, before or after its effect."""
    function = getattr(holder, name)

    def call(*args):
        monkeypatch.setattr(holder, name, function)
        if not before:
            function(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(holder, name, call)


@pytest.mark.parametrize("before", [True, False], ids="before={}".format)
@pytest.mark.parametrize(
    ("holder", "name"),
    [
        *((gc, name) for name in ("isenabled", "disable", "enable")),
        *((_settings._pauses, name) for name in ("begin", "end")),
    ],
)
def test_an_interrupt_of_a_pause_leaves_the_collector_enabled(monkeypatch, holder, name, before):
    interrupt(monkeypatch, holder, name, before=before)
    with pytest.raises(KeyboardInterrupt), pause_gc():
        pass
    assert gc.isenabled()
    assert not _settings._pauses._active


class InterruptedSetter:
    """A setter whose first call that sets ``value`` is interrupted, without effect."""

    def __init__(self, setter, value):
        self.setter, self.value, self.is_interrupted = setter, value, False

    def __call__(self, value):
        if value == self.value and not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        self.setter(value)


def call_on_other_device(devices):
    current = torch.accelerator.current_device_index()
    call_on_device(next(device for device in devices if device.index != current), int)


def call_on_swapped_streams(devices):
    streams = current_stream_by_device(devices)
    call_on_streams({torch.Stream(device): stream for device, stream in streams.items()}, int)


def reduce(devices):
    comm.reduce_add_coalesced([[torch.ones(2, device=device)] for device in devices])


#: For each call: the function that restores a setting, and a function that reads the setting.
RESTORED = {
    call_on_other_device: (
        (torch.accelerator, "set_device_index"),
        lambda devices: torch.accelerator.current_device_index(),
    ),
    lambda devices: call_on_stream(torch.Stream(devices[0]), int): (
        (torch.accelerator, "set_stream"),
        lambda devices: torch.accelerator.current_stream(devices[0]),
    ),
    call_on_swapped_streams: (
        (torch.accelerator, "set_stream"),
        lambda devices: torch.accelerator.current_stream(devices[-1]),
    ),
    reduce: ((torch, "set_grad_enabled"), lambda devices: torch.is_grad_enabled()),
}


@pytest.mark.parametrize("call", RESTORED, ids=["device", "stream", "streams", "grad mode"])
def test_an_interrupted_call_restores_settings(topology, monkeypatch, call):
    (owner, name), read = RESTORED[call]
    devices = topology.devices
    value, streams = read(devices), current_stream_by_device(devices)
    device = torch.accelerator.current_device_index()
    setter = InterruptedSetter(getattr(owner, name), value)
    monkeypatch.setattr(owner, name, setter)
    with pytest.raises(KeyboardInterrupt):
        call(devices)
    assert setter.is_interrupted
    assert read(devices) == value
    assert current_stream_by_device(devices) == streams
    assert torch.accelerator.current_device_index() == device
