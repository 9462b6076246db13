"""impl.extras.registry: the blocks in which the replicas of a wrapper are cached."""

import pytest
import torch
from torch import nn

from impl.extras import registry
from impl_tests.samples import run_python

CPUS = [torch.device("cpu")] * 2


def test_hold_raises_the_exception_of_its_block_unchanged():
    # A context manager of contextlib calls `with_traceback`, and would raise its error instead.
    class UnusualError(Exception):
        def with_traceback(self, traceback):
            raise TypeError("no traceback")

    wrapper, error = nn.Identity(), UnusualError()
    with pytest.raises(UnusualError) as caught, registry.ReplicaCacheBlock(wrapper, CPUS):
        raise error
    assert caught.value is error
    assert registry.find_replica_cache(wrapper) is None


def test_replicas_are_freed_if_the_end_of_the_block_is_interrupted(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    wrapper = nn.Identity()
    # The interrupt arrives before the first statement of `__exit__`.
    monkeypatch.setattr(registry.ReplicaCacheBlock, "__exit__", interrupt)
    with pytest.raises(KeyboardInterrupt), registry.ReplicaCacheBlock(wrapper, CPUS):
        assert registry.find_replica_cache(wrapper) is not None
    assert registry.find_replica_cache(wrapper) is None


def test_a_block_can_be_entered_again():
    wrapper = nn.Identity()
    block = registry.ReplicaCacheBlock(wrapper, CPUS)
    with block:
        with block:
            pass
        assert registry.find_replica_cache(wrapper) is not None
    assert registry.find_replica_cache(wrapper) is None


def test_a_signal_handler_may_enter_a_block_at_the_end_of_a_block():
    class ReentrantSet(set):
        def discard(self, block):
            super().discard(block)
            if not is_reentered:
                is_reentered.append(True)
                with registry.ReplicaCacheBlock(wrapper, CPUS):
                    pass

    wrapper, is_reentered = nn.Identity(), []
    with registry.ReplicaCacheBlock(wrapper, CPUS):
        cache = registry.find_replica_cache(wrapper)
        cache.blocks = ReentrantSet(cache.blocks)
    assert is_reentered
    assert registry.find_replica_cache(wrapper) is None


FORK = """
import os, signal, threading
from torch import nn
from impl.extras import registry

def hold_the_lock():
    with registry._lock:
        is_held.set()
        is_forked.wait()

is_held, is_forked = threading.Event(), threading.Event()
threading.Thread(target=hold_the_lock).start()
is_held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    with registry.ReplicaCacheBlock(nn.Identity(), ["cpu", "cpu"]):
        os._exit(0)
is_forked.set()
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_can_hold_if_another_thread_held_the_lock():
    assert run_python(FORK).stdout == "0\n"
