"""torch.nn.parallel on the stand-ins, where the suite does not compare it with the oracle."""

import pytest
import torch
from torch import nn
from torch.nn import parallel
from torch.nn.parallel import _functions
from torch.nn.parallel.scatter_gather import scatter


def test_parallel_apply_rejects_cpu_device(topology):
    text = f"Expected a {topology.accelerator} device, but got: cpu"
    with pytest.raises(ValueError, match=text):
        parallel.parallel_apply([nn.Identity()], [torch.ones(1)], devices=["cpu"])


def test_scatter_of_a_cpu_tensor_uses_one_background_stream_per_device(topology, monkeypatch):
    calls = []
    primitive = torch._C._scatter

    def record(tensor, devices, chunk_sizes, dim, streams):
        calls.extend(zip(devices, streams, strict=True))
        return primitive(tensor, devices, chunk_sizes, dim, streams)

    monkeypatch.setattr(torch._C, "_scatter", record)
    scatter(torch.zeros(4), topology.take(2))
    scatter(torch.zeros(4), topology.take(2))
    assert [stream.device.index for _, stream in calls] == [device for device, _ in calls]
    assert calls[:2] == calls[2:]
    for device, stream in calls:
        assert stream != torch.accelerator.current_stream(device)


def test_scatter_and_gather_pass_gradgradcheck(topology):
    devices = topology.take(2)
    leaf = torch.randn(4, 2, dtype=torch.float64, device=devices[0], requires_grad=True)

    def scatter_square_gather(x):
        parts = _functions.Scatter.apply([each.index for each in devices], None, 0, x)
        return _functions.Gather.apply(devices[0].index, 0, *[part.square() for part in parts])

    assert torch.autograd.gradcheck(scatter_square_gather, leaf)
    assert torch.autograd.gradgradcheck(scatter_square_gather, leaf)
