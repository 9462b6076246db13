"""The public functions of torch.nn.parallel return right results with the stand-ins."""

import pytest
import torch
from torch import nn
from torch.nn import parallel
from torch.nn.parallel import _functions, comm
from torch.nn.parallel.scatter_gather import gather, scatter

from spec_tests import cuda_stand_ins

pytestmark = [pytest.mark.filterwarnings(each) for each in cuda_stand_ins.IGNORED_WARNINGS]

#: Tolerance for sums of a few dozen float32 products that are added in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def gradients(model):
    return [parameter.grad.cpu() for parameter in model.parameters()]


def assert_close(actual, expected):
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want, **TOLERANCE)


def expected_gradients(inputs):
    model = net()
    model(inputs).square().sum().backward()
    return gradients(model)


@pytest.mark.parametrize("count", [1, 2, 3, 4], ids="devices={}".format)
def test_data_parallel_has_outputs_and_gradients_of_its_module(topology, count):
    inputs = torch.randn(8, 6)
    model = parallel.DataParallel(net().to(topology.device(0)), topology.take(count))
    outputs = model(inputs)
    outputs.square().sum().backward()
    assert outputs.device == topology.device(0)
    assert_close([outputs.cpu()], [net()(inputs)])
    assert_close(gradients(model), expected_gradients(inputs))


@pytest.mark.parametrize("rows", [1, 2, 5], ids="rows={}".format)
def test_function_data_parallel_returns_its_result_on_the_output_device(topology, rows):
    inputs = torch.randn(rows, 6)
    model = net().to(topology.device(0))
    outputs = parallel.data_parallel(model, inputs, topology.take(3), topology.device(1))
    outputs.square().sum().backward()
    assert outputs.device == topology.device(1)
    assert_close(gradients(model), expected_gradients(inputs))


@pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)
def test_replicas_have_outputs_of_the_module(topology, detach):
    devices = topology.take(2)
    replicas = parallel.replicate(net().to(devices[0]), devices, detach)
    inputs = [torch.randn(3, 6, device=device) for device in devices]
    outputs = parallel.parallel_apply(replicas, inputs, devices=devices)
    assert [output.device for output in outputs] == devices
    assert_close([each.cpu() for each in outputs], [net()(each.cpu()) for each in inputs])


@pytest.mark.parametrize(
    "convert", [str, torch.device, lambda each: each.index], ids=["str", "device", "int"]
)
def test_parallel_apply_accepts_device_as_string_device_or_ordinal(topology, convert):
    devices = topology.take(2)
    modules = [nn.Identity(), nn.Identity()]
    inputs = [torch.ones(1, device=device) for device in devices]
    outputs = parallel.parallel_apply(modules, inputs, devices=[convert(each) for each in devices])
    assert [output.device for output in outputs] == devices


def test_parallel_apply_rejects_cpu_device(topology):
    text = f"Expected a {topology.accelerator} device, but got: cpu"
    with pytest.raises(ValueError, match=text):
        parallel.parallel_apply([nn.Identity()], [torch.ones(1)], devices=["cpu"])


def test_error_names_its_replica(topology):
    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("lost")

    model = parallel.DataParallel(Failing(), topology.take(2))
    # Both replicas fail. The model raises the error of replica 0.
    with pytest.raises(KeyError, match="in replica 0 on device"):
        model(torch.zeros(4, 1))


def test_gather_inverts_scatter(topology):
    inputs = {"a": torch.randn(7, 2), "b": [torch.randn(7), None]}
    parts = scatter(inputs, topology.take(3))
    assert [part["a"].device for part in parts] == topology.take(3)
    joined = gather(parts, topology.device(0))
    assert torch.equal(joined["a"].cpu(), inputs["a"])
    assert torch.equal(joined["b"][0].cpu(), inputs["b"][0])


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


def test_gradient_of_a_scattered_cpu_tensor_is_on_the_cpu(topology):
    inputs = torch.randn(5, 2, requires_grad=True)
    parts = scatter(inputs, topology.take(2))
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        sum((index + 1) * part.cpu().sum() for index, part in enumerate(parts)).backward()
    assert inputs.grad.tolist() == [[1, 1]] * 3 + [[2, 2]] * 2


def test_scatter_and_gather_pass_gradgradcheck(topology):
    devices = topology.take(2)
    leaf = torch.randn(4, 2, dtype=torch.float64, device=devices[0], requires_grad=True)

    def scatter_square_gather(x):
        parts = _functions.Scatter.apply([each.index for each in devices], None, 0, x)
        return _functions.Gather.apply(devices[0].index, 0, *[part.square() for part in parts])

    assert torch.autograd.gradcheck(scatter_square_gather, leaf)
    assert torch.autograd.gradgradcheck(scatter_square_gather, leaf)


def test_broadcast_sums_gradients(topology):
    devices = topology.take(3)
    leaf = torch.ones(2, device=devices[0], requires_grad=True)
    copies = _functions.Broadcast.apply([each.index for each in devices], leaf)
    sum(copy.cpu().sum() for copy in copies).backward()
    assert leaf.grad.tolist() == [3, 3]


def test_reduce_add_sums_on_its_destination(topology):
    inputs = [torch.full((2, 3), 2.0**slot, device=d) for slot, d in enumerate(topology.take(3))]
    result = comm.reduce_add(inputs, topology.device(0).index)
    assert result.device == topology.device(0)
    assert result.unique().tolist() == [7]


def test_reduce_add_coalesced_sums_each_list(topology):
    inputs = [[torch.full((n,), 1.0, device=d) for n in (2, 3)] for d in topology.take(2)]
    results = comm.reduce_add_coalesced(inputs, topology.device(0).index)
    assert [result.tolist() for result in results] == [[2, 2], [2, 2, 2]]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_module_is_replicated(topology):
    inputs = torch.randn(4, 6)
    scripted = torch.jit.script(net()).to(topology.device(0))
    outputs = parallel.data_parallel(scripted, inputs, topology.take(2))
    assert_close([outputs.detach().cpu()], [net()(inputs).detach()])


def test_module_keeps_batch_norm_statistics_of_the_first_replica(topology):
    topology.require(distinct=2)
    model = parallel.DataParallel(nn.BatchNorm1d(3).to(topology.device(0)), topology.take(2))
    model(torch.arange(12.0).reshape(4, 3))
    expected = nn.BatchNorm1d(3)
    expected(torch.arange(6.0).reshape(2, 3))
    torch.testing.assert_close(model.module.running_mean.cpu(), expected.running_mean)
    assert model.module.num_batches_tracked.item() == 1
