"""impl.SyncBatchNorm: exchanges of statistics end if a replica will not come."""

import contextlib
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

import impl
from impl import SyncBatchNorm, parallel_apply
from impl._threads import start_in_thread
from spec_tests.checks.leaks import disable_gc, wait_until
from spec_tests.machine.processes import run_program

#: Exits with 0 if Ctrl-C ends a call whose modules wait for each other, and with 1 if it hangs.
INTERRUPTED = """
import os, signal, threading, time
import torch, impl
layer = impl.SyncBatchNorm(2)
has_begun, is_interrupted = threading.Event(), threading.Event()
class Late(torch.nn.Module):
    def forward(self, x):
        has_begun.set()
        is_interrupted.wait()
        return x
def interrupt():
    has_begun.wait()
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
def end_last_module(*_):
    is_interrupted.set()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, end_last_module)
threading.Thread(target=interrupt).start()
threading.Timer(20, os._exit, [1]).start()
try:
    impl.parallel_apply([layer, layer, Late()], [torch.ones(2, 2)] * 3)
except KeyboardInterrupt:
    os._exit(0)
"""


def layers():
    layer = SyncBatchNorm(2)
    return [nn.Sequential(layer), nn.Sequential(layer)]


def test_an_exchange_ends_if_a_thread_cannot_start(monkeypatch):
    started, errors = [], []

    def start_once(function, state):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(start_in_thread(function, state))
        return started[0]

    def call(x):
        try:
            return layers()[0](x)
        except RuntimeError as error:
            errors.append(str(error))

    monkeypatch.setattr(sys.modules["impl.parallel_apply"], "start_in_thread", start_once)
    with pytest.raises(RuntimeError, match="can't start"):
        parallel_apply([call] * 3, [torch.ones(2, 2)] * 3)
    wait_until(lambda: errors)
    assert "the call has ended" in errors[0]


def test_an_interrupt_ends_an_exchange():
    completed = run_program(INTERRUPTED)
    assert completed.returncode == 0, completed.stderr


def test_nested_calls_exchange_among_themselves():
    x = [torch.randn(4, 2), torch.randn(4, 2)]
    inner = layers()

    def call(both):
        return torch.cat(parallel_apply(inner, both.split(1)[:2]))

    found = parallel_apply([call, call], x)
    for output, both in zip(found, x, strict=True):
        expected = nn.functional.batch_norm(both[:2], None, None, training=True)
        torch.testing.assert_close(output, expected)


def test_threads_of_callers_exchange_within_their_calls():
    layer = nn.Sequential(SyncBatchNorm(2, track_running_stats=False))
    wrapper = impl.DataParallel(layer, ["cpu"] * 2)
    batches = [torch.randn(4, 2) for _ in range(4)]
    outputs = [None] * 4

    def compute(index):
        for _ in range(20):
            outputs[index] = wrapper(batches[index])

    threads = [threading.Thread(target=compute, args=[index]) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for output, batch in zip(outputs, batches, strict=True):
        torch.testing.assert_close(output, layer(batch))


def test_a_failed_exchange_keeps_no_tensor_alive():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError(x.shape)

    x = torch.ones(2, 2)
    reference = weakref.ref(x)
    with disable_gc():
        with contextlib.suppress(KeyError):
            parallel_apply([layers()[0], Fails()], [x, x])
        del x
        assert reference() is None


def test_an_error_of_the_combination_is_raised(monkeypatch):
    def fail(parts):
        raise ZeroDivisionError(len(parts))

    monkeypatch.setattr(sys.modules["impl.extras.batch_norm"], "_combine", fail)
    with pytest.raises(ZeroDivisionError):
        parallel_apply(layers(), [torch.ones(2, 2)] * 2)
