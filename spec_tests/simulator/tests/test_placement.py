"""Errors for tensors on two devices, invalid ordinals and unsupported operators."""

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("sim")

SAME_DEVICE = "Expected all tensors to be on the same device"
X = torch.ones(4, 5)
#: Operators of two tensors. A test calls each with the second tensor on another device.
BINARY = {
    "in-place": lambda x, y: y.mul_(x),
    "cat": lambda x, y: torch.cat([x, y]),
    "linear bias": lambda x, y: functional.linear(x, x, y[0, :4]),
    "conv1d": lambda x, y: functional.conv1d(x[None], y[None, :, :2]),
    "embedding": lambda x, y: functional.embedding(y[0].long(), x),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
    "out": lambda x, y: torch.add(x, x, out=y),
    "set_": lambda x, y: x.set_(y),
    "sparse": lambda x, y: x.to_sparse() + y.to_sparse(),
    "compressed": lambda x, y: torch.sparse.sampled_addmm(x.to_sparse_csr(), x @ x.t(), y),
}
#: Functions of a device tensor x and a 0-dim CPU tensor y that raise an error. Most accept y.
REJECT_CPU_SCALAR = {
    "gcd": lambda x, y: torch.gcd(x.long(), y.long()),
    "embedding": lambda x, y: functional.embedding(y.long(), x),
    "in-place": lambda x, y: y.add_(x.sum()),
    "cat": lambda x, y: torch.cat([x[0], y.reshape(1)]),
}
INVALID_ORDINAL = {
    "stream": lambda: torch.Stream("sim:7"),
    "synchronize": lambda: torch.sim.synchronize(7),
    "generator": lambda: torch.Generator("sim:7"),
    "statistics": lambda: torch.sim.memory_allocated(7),
}
NOT_IMPLEMENTED = {
    "aten::_sparse_mm_reduce_impl": lambda x: torch.sparse.mm(
        (x @ x.t()).to_sparse_csr().requires_grad_(), x, "sum"
    ),
    "aten::to_mkldnn": lambda x: x.to_mkldnn(),
    "aten::batch_norm_stats": lambda x: torch.batch_norm_stats(x, 1e-5),
    "aten::quantize_per_tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
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


def test_operators_accept_scalars_of_the_cpu_only():
    x, two = X.to("sim:2"), torch.tensor(2.0)
    for y in (x + two, two + x, x.clone().add_(two), x.where(x < 0, two), x.lerp(x, two) + two):
        assert str(y.device) == "sim:2"
        assert y.max().item() in (2, 3)
    assert (x.half() * two).dtype == torch.float16
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        x + two.to("sim:1")


def test_indexing_accepts_cpu_indices():
    x = torch.arange(20.0, device="sim:2").reshape(4, 5)
    assert x[torch.tensor([1, 0])][0, 0].item() == 5
    x[torch.tensor([0])] = torch.tensor(9.0)
    assert x[0].tolist() == [9] * 5
    with pytest.raises(RuntimeError):
        x[torch.tensor([0], device="sim:1")]


@pytest.mark.parametrize("name", INVALID_ORDINAL)
def test_error_names_invalid_ordinal(name):
    with pytest.raises(RuntimeError, match="invalid device ordinal 7: there are 4 devices"):
        INVALID_ORDINAL[name]()
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")  # PyTorch 2.12 and newer.
@pytest.mark.parametrize("name", NOT_IMPLEMENTED)
def test_error_names_unimplemented_operator(name):
    with pytest.raises(NotImplementedError, match=name):
        NOT_IMPLEMENTED[name](X.to("sim:2"))


def test_histc_of_integers_counts_as_on_cuda():
    x = torch.tensor([3, 9, 3, 6], device="sim:2")
    assert torch.histc(x, 3).tolist() == [2, 1, 1]
    assert torch.histc(x, 2, 3, 8).tolist() == [2, 1]
    assert torch.histc(x[:1], 2).tolist() == [0, 1]
    out = torch.empty(0, dtype=torch.int64, device="sim:2")
    assert torch.histc(x, 2, 0, 9, out=out) is out
    assert out.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x, 2, 3, 1)


def test_operators_of_other_libraries_need_a_sim_kernel():
    @torch.library.custom_op("sim_test::twice", mutates_args=(), device_types="cpu")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert twice(X).equal(X * 2)
    with pytest.raises(NotImplementedError, match="sim_test::twice"):
        twice(X.to("sim:2"))
    twice.register_kernel("sim")(lambda x: x * 2)
    assert str(twice(X.to("sim:2")).device) == "sim:2"
