"""Errors for tensors on two devices, invalid ordinals and unsupported operators."""

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("sim")

SAME_DEVICE = "Expected all tensors to be on the same device"
X = torch.ones(4, 5)
I = torch.zeros(4, dtype=torch.long)  # noqa: E741 - an index
#: Operators of two tensors. A test calls each with the second tensor on another device.
BINARY = {
    "add": lambda x, y: x + y,
    "add_": lambda x, y: x.add_(y),
    "matmul": lambda x, y: x @ y.t(),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "where mask": lambda x, y: torch.where(y > 0, x, x),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "logaddexp": torch.logaddexp,
    "equal": torch.equal,
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "addmm": lambda x, y: torch.addmm(y[0, :4], x, x.t()),
    "linear": lambda x, y: functional.linear(x, y),
    "linear bias": lambda x, y: functional.linear(x, x, y[0, :4]),
    "conv1d": lambda x, y: functional.conv1d(x[None], y[None, :, :2]),
    "batch_norm": lambda x, y: functional.batch_norm(x, y[0], y[1]),
    "layer_norm": lambda x, y: functional.layer_norm(x, (5,), y[0]),
    "embedding": lambda x, y: functional.embedding(y[0].long(), x),
    "cross_entropy": lambda x, y: functional.cross_entropy(x, y[:, 0].long()),
    "mse_loss": functional.mse_loss,
    "gather": lambda x, y: x.gather(1, y.long()),
    "index_select": lambda x, y: x.index_select(0, y[0].long()),
    "scatter": lambda x, y: x.scatter(1, x.long(), y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 2.0),
    "index_put values": lambda x, y: x.index_put((x[:, 0].long(),), y),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
    "out": lambda x, y: torch.add(x, x, out=y),
    "in-place": lambda x, y: y.mul_(x),
    "set_": lambda x, y: x.set_(y),
}
#: Functions of a device tensor x and a 0-dim CPU tensor y that raise an error. Most accept y.
REJECT_CPU_SCALAR = {
    "gcd": lambda x, y: torch.gcd(x.long(), y.long()),
    "logaddexp": torch.logaddexp,
    "embedding": lambda x, y: functional.embedding(y.long(), x),
    "in-place": lambda x, y: y.add_(x.sum()),
    "cat": lambda x, y: torch.cat([x[0], y.reshape(1)]),
    "prelu": functional.prelu,
}
INVALID_ORDINAL = {
    "empty": lambda: torch.empty(1, device="sim:7"),
    "to": lambda: torch.ones(1).to("sim:7"),
    "method": lambda: torch.ones(1).sim(7),
    "module": lambda: nn.Linear(1, 1).to("sim:7"),
    "stream": lambda: torch.Stream("sim:7"),
    "set_device": lambda: torch.accelerator.set_device_index(7),
    "context": lambda: torch.sim.device(7).__enter__(),
    "synchronize": lambda: torch.sim.synchronize(7),
    "generator": lambda: torch.Generator("sim:7"),
    "statistics": lambda: torch.sim.memory_allocated(7),
}
NOT_IMPLEMENTED = {
    "aten::to_mkldnn": lambda x: x.to_mkldnn(),
    "aten::batch_norm_stats": lambda x: torch.batch_norm_stats(x, 1e-5),
}


@pytest.mark.parametrize("other", ["sim:1", "cpu"])
@pytest.mark.parametrize("name", BINARY)
def test_operators_reject_tensors_of_two_devices(name, other):
    with pytest.raises(RuntimeError) as raised:
        BINARY[name](X.to("sim:2"), X.to(other, copy=True))
    assert SAME_DEVICE in str(raised.value)
    assert {"sim:2", other} <= set(str(raised.value).replace(",", "").replace("!", "").split())


@pytest.mark.parametrize("name", REJECT_CPU_SCALAR)
def test_operators_that_reject_cpu_scalars_on_cuda_reject_them_on_sim(name):
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        REJECT_CPU_SCALAR[name](X.to("sim:2"), torch.tensor(1.0))


def test_operator_rejects_scalar_of_another_device():
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        X.to("sim:2") + torch.tensor(1.0, device="sim:1")


def test_operators_accept_cpu_scalars():
    x, two = X.to("sim:2"), torch.tensor(2.0)
    for y in (x + two, two + x, x.clone().add_(two), x.where(x < 0, two), x.lerp(x, two) + two):
        assert str(y.device) == "sim:2"
        assert y.max().item() in (2, 3)
    assert (x.half() * two).dtype == torch.float16


def test_indexing_accepts_cpu_indices():
    x = torch.arange(20.0, device="sim:2").reshape(4, 5)
    assert x[torch.tensor([1, 0])][0, 0].item() == 5
    assert x[X > 2].numel() == 0
    x[torch.tensor([0])] = torch.tensor(9.0)
    assert x[0].tolist() == [9] * 5
    with pytest.raises(RuntimeError):
        x[torch.tensor([0], device="sim:1")]


@pytest.mark.parametrize("name", INVALID_ORDINAL)
def test_error_names_invalid_ordinal(name):
    with pytest.raises(RuntimeError, match="invalid device ordinal 7: there are 4 devices"):
        INVALID_ORDINAL[name]()
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.parametrize("name", NOT_IMPLEMENTED)
def test_error_names_unimplemented_operator(name):
    with pytest.raises(NotImplementedError, match=name):
        NOT_IMPLEMENTED[name](X.to("sim:2"))


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")  # PyTorch 2.12 and newer.
def test_quantized_tensors_are_not_implemented():
    quantized = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
    for name, make in {
        "quantize_per_tensor": lambda: torch.quantize_per_tensor(
            X.to("sim:2"), 0.1, 0, torch.qint8
        ),
        "empty_quantized": lambda: torch.empty_quantized([2], quantized, device="sim:2"),
        "_empty_affine_quantized": lambda: torch._empty_affine_quantized(
            [2], scale=0.1, zero_point=0, dtype=torch.qint8, device="sim:2"
        ),
        "(empty_|)quantized": lambda: quantized.to("sim:2"),
    }.items():
        with pytest.raises(
            NotImplementedError, match=f"aten::{name}.* is not implemented for the sim device"
        ):
            make()


def test_operators_of_other_libraries_need_a_sim_kernel():
    @torch.library.custom_op("sim_test::twice", mutates_args=(), device_types="cpu")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert twice(X).equal(X * 2)
    with pytest.raises(NotImplementedError, match="sim_test::twice"):
        twice(X.to("sim:2"))
    twice.register_kernel("sim")(lambda x: x * 2)
    assert str(twice(X.to("sim:2")).device) == "sim:2"
