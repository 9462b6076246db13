"""A machine that garbles copies is told from a wrong implementation."""

import pytest
import torch

from spec_tests.harness.environment.machine_check import first_broken_copy, require_copies

#: Names of devices; nothing is computed there.
DEVICES = [torch.device("meta", ordinal) for ordinal in range(2)]


def _sound(tensor, device):
    arrived = tensor.clone()
    arrived.holder = device
    return arrived


def _without_peers(tensor, device):
    """The second half of what goes from one device to another is lost."""
    arrived = _sound(tensor, device)
    if {getattr(tensor, "holder", device), device} == set(DEVICES):
        arrived[len(arrived) // 2 :] = 0
    return arrived


def _short(tensor, device):
    """Only what fits one page arrives."""
    arrived = _sound(tensor, device)
    arrived[1024:] = 0
    return arrived


def test_a_sound_machine_is_trusted():
    assert first_broken_copy(DEVICES, _sound) is None


def test_the_broken_way_is_named():
    found = first_broken_copy(DEVICES, _without_peers)
    assert "machine broken: 64 bytes copied from meta:0 to meta:1" in found


def test_large_copies_are_tried_too():
    assert "machine broken: 1048576 bytes" in first_broken_copy(DEVICES, _short)


def test_the_run_ends_before_the_first_test():
    with pytest.raises(pytest.exit.Exception, match="machine broken"):
        require_copies(DEVICES, _without_peers)
