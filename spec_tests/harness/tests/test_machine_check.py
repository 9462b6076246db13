"""The check for broken copies between devices, which runs before the first test."""

import pytest
import torch

from spec_tests.harness.environment.machine_check import (
    first_broken_copy,
    require_copies,
    require_writes,
)

#: Two devices. The tests compare them, but allocate no memory on them.
DEVICES = [torch.device("meta", ordinal) for ordinal in range(2)]


def _copy(tensor, device):
    copy = tensor.clone()
    copy.holder = device
    return copy


def _truncated_peer_copy(tensor, device):
    """Copy, but fill the second half with zeros if the copy is between two devices."""
    copy = _copy(tensor, device)
    if {getattr(tensor, "holder", device), device} == set(DEVICES):
        copy[len(copy) // 2 :] = 0
    return copy


def _one_page_copy(tensor, device):
    """Copy the first 1024 elements, and fill the rest with zeros."""
    copy = _copy(tensor, device)
    copy[1024:] = 0
    return copy


def test_machine_check_accepts_correct_copies():
    assert first_broken_copy(DEVICES, _copy) is None


def test_machine_check_names_the_broken_copy():
    message = first_broken_copy(DEVICES, _truncated_peer_copy)
    assert "machine broken: 64 bytes copied from meta:0 to meta:1" in message


def test_machine_check_detects_errors_in_large_copies_only():
    assert "machine broken: 1048576 bytes" in first_broken_copy(DEVICES, _one_page_copy)


def test_broken_copy_ends_the_run():
    with pytest.raises(pytest.exit.Exception, match="machine broken"):
        require_copies(DEVICES, _truncated_peer_copy)


def _fill_from_the_start(tensor, value, fill=torch.Tensor.fill_):
    """Fill the beginning of the storage instead of ``tensor`` if ``tensor`` is on a device."""
    if tensor.device.type != "cpu":
        tensor = tensor.as_strided(tensor.shape, tensor.stride(), 0)
    return fill(tensor, value)


def test_write_to_the_wrong_rows_ends_the_run(topology, monkeypatch):
    require_writes(topology.devices)
    monkeypatch.setattr(torch.Tensor, "fill_", _fill_from_the_start)
    with pytest.raises(pytest.exit.Exception, match="after writes to parts of a tensor"):
        require_writes(topology.devices)
