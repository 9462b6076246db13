"""Calls while another part of the program lists all objects, as memory profilers do.

``tuple(generator)`` fails if ``gc.get_objects()`` returns the unfinished tuple: python/cpython
issue 59313.
"""

import gc
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import impl
from impl import comm

FOLDER = str(Path(impl.__file__).parent)


@contextmanager
def list_objects():
    """At each call or return inside impl, list all objects that were created in the block."""
    listed = []

    def on_event(frame, event, argument):
        if frame.f_code.co_filename.startswith(FOLDER):
            listed[:] = gc.get_objects()

    gc.collect()
    gc.freeze()
    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield listed
    finally:
        sys.setprofile(before)
        gc.unfreeze()


def reduce(devices):
    lists = [[torch.ones(2, device=device), torch.ones(3, device=device)] for device in devices]
    return comm.reduce_add_coalesced(lists)


def train(devices):
    net = nn.Linear(2, 2).to(devices[0])
    impl.DataParallel(net, devices)(torch.ones(4, 2, device=devices[0])).sum().backward()
    return net.weight.grad


@pytest.mark.parametrize("call", [reduce, train])
def test_a_call_succeeds_while_all_objects_are_listed(call, topology):
    devices = topology.devices[:2]
    with list_objects() as listed:
        call(devices)
    assert listed
