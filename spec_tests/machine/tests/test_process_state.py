"""The settings of the process that a test of a target must leave as they were."""

import gc
import sys
import threading
import warnings
from contextlib import chdir, contextmanager
from unittest.mock import patch

import pytest
import torch

from spec_tests.machine import process_state


@contextmanager
def setting(write, value, before):
    """Write a setting inside the block."""
    write(value)
    try:
        yield
    finally:
        write(before)


#: For each setting: a block that changes it.
BLOCKS = {
    "grad mode": torch.no_grad,
    "inference mode": torch.inference_mode,
    "default dtype": lambda: setting(torch.set_default_dtype, torch.half, torch.float),
    "default device": lambda: torch.device("meta"),
    "number of threads": lambda: setting(
        torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
    ),
    "autocast's cache": lambda: setting(torch.set_autocast_cache_enabled, False, True),
    "autocast of cpu": lambda: torch.autocast("cpu"),
    "warning filters": lambda: warnings.catch_warnings(action="ignore", category=ResourceWarning),
    "garbage collector": lambda: setting(lambda on: (gc.disable, gc.enable)[on](), False, True),
    "current folder": lambda: chdir("/"),
    "recursion limit": lambda: setting(
        sys.setrecursionlimit, sys.getrecursionlimit() + 1, sys.getrecursionlimit()
    ),
    "hooks of sys": lambda: patch.object(sys, "excepthook", print),
    "hooks of threading": lambda: patch.object(threading, "excepthook", print),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_changed_setting_is_named(topology, name):
    before = process_state.read(topology)
    with BLOCKS[name]():
        changed = process_state.changes(before, process_state.read(topology))
    others = {"grad mode"} if name == "inference mode" else set()
    assert set(changed) == {name, *others}
    assert not process_state.changes(before, process_state.read(topology))
