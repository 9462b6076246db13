"""Probes of a back end: a call that ends or blocks its process is a finding like any other."""

import os
import time
import warnings

import pytest

from spec_tests.machine import probes
from spec_tests.machine.devices import Topology
from spec_tests.machine.probes import Finding

pytestmark = pytest.mark.slow  # Each process imports torch.

#: Topologies of real devices are tried in another process. The CPU stands for a real device here.
DEVICES = Topology("cpu", (0,))


def probe(name, topology):
    match name:
        case "aborts":
            os.abort()
        case "exits":
            os._exit(3)
        case "blocks":
            time.sleep(600)
        case "raises":
            raise KeyError("first\nsecond")
        case "is wrong":
            raise AssertionError("0 is not 1")
        case "is flaky":
            fail_in_two_ways()
        case "lacks":
            exec("assert False, 'no wings'", {"__name__": "torch.wings"})
        case "needs more":
            topology.require(distinct=2)
        case "warns":
            warnings.warn("slow\nvery", stacklevel=1)


def fail_in_two_ways():
    """Raise what Hypothesis raises if a call fails in two ways."""
    try:
        raise AssertionError("1 is not 2")
    except AssertionError as error:
        raise ExceptionGroup("two", [error, KeyError("third")]) from None


@pytest.fixture(autouse=True)
def cpu_is_a_device(monkeypatch):
    """Accept the CPU as a device in the process of the probes, and discard all findings."""
    monkeypatch.setattr(probes, "_send", send_without_devices)
    monkeypatch.setattr(probes, "FOUND", {})


def send_without_devices(sender, probe, names, topology):
    sender.send(None)
    for name in names:
        sender.send(probes.try_probe(probe, name, topology))


def test_a_probe_that_ends_its_process_is_missing_and_the_others_are_tried():
    expected = [
        Finding("aborts", "missing", "ends the process (SIGABRT)"),
        Finding("works", "there"),
        Finding("exits", "missing", "ends the process (status 3)"),
        Finding("raises", "missing", "'first\\nsecond'"),
        Finding("is wrong", "wrong", "0 is not 1"),
        Finding("is flaky", "wrong", "1 is not 2"),
        Finding("lacks", "missing", "no wings"),
        Finding("needs more", "not-run", "needs 2 different devices, the topology has 1"),
        Finding("warns", "there", "", ("slow",)),
    ]
    assert probes.find_all(probe, [each.name for each in expected], DEVICES) == expected


def test_devices_for_a_single_process_are_tried_in_this_process(monkeypatch):
    monkeypatch.setattr(probes, "_send", end_at_once)
    found = probes.find_all(probe, ["raises", "works"], DEVICES)
    assert [each.state for each in found] == ["missing", "there"]


def end_at_once(sender, probe, names, topology):
    pass


def test_a_probe_that_never_returns_is_missing(monkeypatch):
    monkeypatch.setattr(probes, "PROBE_LIMIT", 20)
    found = probes.find_all(probe, ["blocks", "works"], DEVICES)
    assert [each.text for each in found] == ["does not return within 20 s", ""]
