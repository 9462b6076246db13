"""impl._unshared_chunks: changes of chunks in place, of which each replica has a copy."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from impl import DataParallel, Whole
from spec_tests.strategies.small_modules import Calls


def on_cpu_replicas(function, **options):
    """Return a wrapper that calls a function with a parameter and the arguments."""
    weight = nn.Parameter(torch.ones(()))
    module = Calls(lambda module, *args: function(module.weight, *args), weight=weight)
    return DataParallel(module, ["cpu"] * 2, **options)


class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.clone:
            raise NotImplementedError("clone")
        return super().__torch_function__(function, types, args, kwargs or {})


def test_copies_keep_the_class_and_the_attributes_of_views():
    x = torch.ones(4).as_subclass(Named)
    x.tag = ["tag"]
    seen = []
    model = on_cpu_replicas(lambda weight, chunk: seen.append(chunk) or chunk.relu_() * weight)
    model(x).sum().backward()
    assert model.module.weight.grad.item() == 4
    assert [type(chunk) for chunk in seen] == [Named] * 2
    assert all(chunk.tag is x.tag for chunk in seen)


@pytest.mark.parametrize("in_turn", [False, True], ids="in-turn={}".format)
def test_changes_before_an_error_are_kept(in_turn):
    def fail(weight, x):
        x.add_(1)
        raise ValueError("a replica failed")

    x = torch.zeros(4)
    with pytest.raises(ValueError, match="a replica failed"):
        on_cpu_replicas(fail, in_turn=in_turn)(x)
    assert x.tolist() == [1, 1, 1, 1]


def test_a_change_after_the_forward_does_not_reach_the_callers_tensor():
    kept = []
    model = on_cpu_replicas(lambda weight, x: kept.append(x) or x * weight)
    x, outside = torch.ones(4), torch.ones(4, requires_grad=True)
    saved = (x * outside).sum()
    output = model(x)
    kept[0].zero_()
    saved.backward()
    assert outside.grad.tolist() == x.tolist() == [1, 1, 1, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_in_place_changes_of_short_batches_train(rows):
    model = on_cpu_replicas(lambda weight, x: x.relu_() * weight)
    model(torch.ones(rows, 2)).sum().backward()
    assert model.module.weight.grad.item() == 2 * rows


VIEWS = {
    "tensor": lambda z: z,
    "conjugate": torch.conj,
    "imaginary part": lambda z: z.imag,
    "negative imaginary part": lambda z: z.conj().imag,
    "complex view": lambda z: torch.view_as_complex(torch.view_as_real(z).clone()),
}


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_changes_with_a_gradient_reach_the_callers_tensor(view, rows):
    def write(weight, x):
        x[:, 0] = 3 * weight.to(x.dtype)
        return x * 1

    def step(call):
        z = torch.arange(15).reshape(5, 3) * (1 + 2j)
        x = view(z)[1 : 1 + rows]
        output = call(x)
        total = (output.sum() + x.square().sum() + z.abs().sum()).abs()
        return x.detach(), z.detach(), *torch.autograd.grad(total, weight)

    model = on_cpu_replicas(write)
    weight = model.module.weight
    for found, expected in zip(step(model), step(model.module), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("history", [False, True], ids="history={}".format)
@pytest.mark.parametrize("rows", [1, 4])
def test_changes_of_an_expanded_tensor_are_those_of_the_module_alone(rows, history):
    def write(weight, x):
        assert x.stride(1) == 0
        x[:, 0] = 3 * weight if history else 3
        return x * weight

    def step(call):
        base = torch.arange(4.0)[:rows, None]
        output = call(base.expand(rows, 3))
        gradient = torch.autograd.grad(output.sum() + base.sum(), weight)
        return output.detach(), base.detach(), *gradient

    model = on_cpu_replicas(write)
    weight = model.module.weight
    for found, expected in zip(step(model), step(model.module), strict=True):
        torch.testing.assert_close(found, expected)


def test_in_place_changes_of_packed_sequences_train():
    def scale(weight, packed: PackedSequence):
        return packed._replace(data=packed.data.mul_(2) * weight)

    model = on_cpu_replicas(scale)
    packed = pack_sequence([torch.ones(3), torch.ones(2), torch.ones(1)])
    model(packed).data.sum().backward()
    assert model.module.weight.grad.item() == 12


@pytest.mark.parametrize(
    ("function", "mark"),
    [
        (lambda weight, x, y: x.relu_() * weight + y * weight, lambda x: x),
        (lambda weight, x, whole: whole.sum() * weight + x.add_(1) * weight, Whole),
    ],
    ids=["view", "whole copy"],
)
def test_a_change_beside_another_use_of_the_same_tensor_raises_in_backward(function, mark):
    x = torch.ones(4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        on_cpu_replicas(function, in_turn=True)(x, mark(x)).sum().backward()


def test_a_shape_that_a_replica_changes_is_not_the_shape_of_the_callers_tensor():
    x = torch.ones(4, 3)
    on_cpu_replicas(lambda weight, chunk: chunk.t_().mul_(2).t() * weight)(x)
    assert x.tolist() == [[2.0] * 3] * 4


@pytest.mark.parametrize("columns", [2, 3], ids="columns={}".format)
def test_a_change_with_a_gradient_of_a_transposed_chunk_reaches_its_elements(columns):
    x = torch.arange(4.0 * columns).reshape(4, columns)
    doubled = 2 * x
    model = on_cpu_replicas(lambda weight, chunk: chunk.t_().mul_(2 * weight).t() * 1)
    assert model(x).tolist() == x.tolist() == doubled.tolist()
    x.sum().backward()
    assert model.module.weight.grad == doubled.sum()
