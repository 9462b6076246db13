"""Tests of the order of work: not-run on synchronous devices, delayed on asynchronous ones."""

import dataclasses

import pytest
import torch

from spec_tests.checks import side_streams
from spec_tests.machine import capabilities


@pytest.fixture
def synchronous(topology, monkeypatch):
    """Make the suite believe that the operators of the devices are synchronous."""
    (used,) = capabilities._used
    features = used.features - {"asynchronous-operators"}
    monkeypatch.setattr(capabilities, "_used", [dataclasses.replace(used, features=features)])


@pytest.mark.parametrize(
    "start",
    [
        lambda topology: side_streams.on_side_streams(topology).__enter__(),
        lambda topology: side_streams.late_copies(topology).__enter__(),
        lambda topology: side_streams.queued_arange(topology, 0, 3),
        lambda topology: side_streams.queued_copies(torch.ones(1)),
    ],
)
def test_on_synchronous_devices_a_test_of_order_is_not_run(synchronous, topology, start):
    with pytest.raises(pytest.skip.Exception, match="no test shows the order of work"):
        start(topology)
