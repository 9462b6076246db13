"""Backward of DataParallelWithLoss, in the threads of its replicas: DP-11."""

import copy
import threading
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities

BACKWARD_CLAUSE = clause("divergences.DP-11.backward")
THREADS_CLAUSE = clause("divergences.DP-11.threads-of-backward")
REFUSED_CLAUSE = clause("divergences.DP-11.refusals")
CLASSES = 5
DEVICES = st.sampled_from([2, 3, 4, 1, ["cpu"], ["cpu"] * 3])


class Checkpointed(nn.Module):
    """Layers that compute again in backward, share a weight, and have a frozen parameter."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.out, self.use_reentrant = nn.Linear(3, CLASSES), use_reentrant

    def forward(self, x):
        hidden = self.first(x)
        hidden = checkpoint(self._middle, hidden, use_reentrant=self.use_reentrant)
        return self.out(hidden)

    def _middle(self, hidden):
        return self.second(hidden.tanh())


class SumOfViews(nn.Module):
    """A module in whose backward two parameters get views of one gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x + (self.first[None] + self.second[None])


class WithInferenceParameter(nn.Module):
    """A layer with a parameter that was created in inference mode."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, CLASSES)
        with torch.inference_mode():
            self.shift = nn.Parameter(torch.zeros(CLASSES))

    def forward(self, x):
        return self.layer(x) + self.shift


class UsedByLargeWords(nn.Module):
    """A layer of words that is used only if all words are at least 2."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def forward(self, numbers):
        if bool((numbers >= 2).all()):
            return self.words(numbers)
        return torch.ones_like(numbers, dtype=torch.float)


def compare_backward(
    target, topology, devices, net, criterion, inputs, labels, is_compiled=False, **options
):
    """Compare ``backward`` of the wrapper with that of the loss of a forward."""
    placed = topology.take(devices) if isinstance(devices, int) else devices
    move = partial(
        torch.utils._pytree.tree_map_only,
        torch.Tensor,
        lambda x: x.detach().to(placed[0]).requires_grad_(x.requires_grad),
    )
    found = []
    for uses_backward in (True, False):
        here, arguments, module = move(labels), move(inputs), copy.deepcopy(net).to(placed[0])
        compiled = torch.compile(module, backend="eager") if is_compiled else module
        wrapper = target.package.DataParallelWithLoss(compiled, criterion, placed, **options)
        for _ in range(2):  # The second call adds to the gradients of the first.
            if uses_backward:
                loss = wrapper.backward(*arguments, target=here)
            else:
                loss = wrapper(*arguments, target=here)
                loss.backward()
                loss = loss.detach()
        assert not loss.requires_grad
        tensors = [*module.parameters(), *arguments]
        found.append(snapshot([loss, [each.grad for each in tensors]], {}, strides=False))
    checks.same(*found, tolerance=checks.LAYER)


@BACKWARD_CLAUSE
@given(
    rows=st.integers(1, 9),
    devices=DEVICES,
    reduction=st.sampled_from(["mean", "sum"]),
    labels_have_grad=st.booleans(),
)
def test_backward_adds_the_gradients_of_the_loss(
    target, topology, rows, devices, reduction, labels_have_grad
):
    compare_backward(
        target,
        topology,
        devices,
        nn.Linear(3, CLASSES),
        nn.MSELoss(reduction=reduction),
        [torch.rand(rows, 3)],
        torch.rand(rows, CLASSES, requires_grad=labels_have_grad),
    )


@BACKWARD_CLAUSE
@pytest.mark.parametrize("devices", [3, ["cpu"] * 3])
@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("cache_frozen_parameters", [True, False])
def test_backward_of_checkpoints_and_shared_parameters(
    target, topology, devices, use_reentrant, cache_frozen_parameters
):
    capabilities.require("autocast")  # Backward of a checkpoint uses it.
    compare_backward(
        target,
        topology,
        devices,
        Checkpointed(use_reentrant),
        nn.CrossEntropyLoss(),
        [torch.rand(7, 3)],
        torch.arange(7) % CLASSES,
        chunk_sizes=[1, 2, 4],
        cache_frozen_parameters=cache_frozen_parameters,
    )


@BACKWARD_CLAUSE
@pytest.mark.parametrize("devices", [2, ["cpu"] * 2])
def test_backward_of_a_batch_norm_over_the_replicas(target, topology, devices):
    compare_backward(
        target,
        topology,
        devices,
        nn.Sequential(nn.Linear(3, CLASSES), target.package.SyncBatchNorm(CLASSES)),
        nn.MSELoss(),
        [torch.rand(5, 3)],
        torch.rand(5, CLASSES),
    )


@BACKWARD_CLAUSE
@pytest.mark.parametrize("devices", [2, ["cpu"] * 2])
@pytest.mark.parametrize("sparse", [False, True])
def test_backward_of_a_layer_that_one_replica_uses(target, topology, devices, sparse):
    if sparse:
        capabilities.require("sparse")
    placed = topology.take(devices) if isinstance(devices, int) else devices
    words = nn.Embedding(4, 3, sparse=sparse).to(placed[0])
    wrapper = target.package.DataParallelWithLoss(
        UsedByLargeWords(words), lambda output, _: output.sum(), placed, reduction="sum"
    )
    loss = wrapper.backward(torch.arange(4, device=placed[0]), target=None)
    expected = torch.tensor([[0.0], [0.0], [1.0], [1.0]], device=placed[0]).expand(4, 3)
    checks.same(words.weight.grad.to_dense(), expected, tolerance=checks.LAYER)
    checks.same(loss, words.weight[2:].sum().detach() + 2, tolerance=checks.LAYER)


@BACKWARD_CLAUSE
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("in_turn", [False, True])
def test_backward_of_replicas_in_turn_and_of_compiled_ones(target, topology, is_compiled, in_turn):
    compare_backward(
        target,
        topology,
        2,
        nn.Linear(3, CLASSES),
        nn.MSELoss(),
        [torch.rand(5, 3)],
        torch.rand(5, CLASSES),
        is_compiled=is_compiled,
        in_turn=in_turn,
    )


@BACKWARD_CLAUSE
@pytest.mark.parametrize("devices", [2, ["cpu"] * 2, ["cpu"] * 3])
def test_backward_of_gradients_that_share_memory(target, topology, devices):
    compare_backward(
        target, topology, devices, SumOfViews(), nn.MSELoss(), [torch.rand(4, 3)], torch.rand(4, 3)
    )


@BACKWARD_CLAUSE
def test_backward_of_a_parameter_from_inference_mode(target, topology):
    compare_backward(
        target,
        topology,
        ["cpu"] * 2,
        WithInferenceParameter(),
        nn.MSELoss(),
        [torch.rand(4, 3)],
        torch.rand(4, CLASSES),
    )


@BACKWARD_CLAUSE
@pytest.mark.parametrize("name", ["forward", "replicate", "parallel_apply", "gather"])
def test_backward_uses_the_overrides_of_a_subclass(target, name):
    calls = []

    def override(self, *args, **kwargs):
        calls.append(name)
        return getattr(target.package.DataParallelWithLoss, name)(self, *args, **kwargs)

    kind = type("Overriding", (target.package.DataParallelWithLoss,), {name: override})
    wrapper = kind(nn.Linear(3, 1), nn.L1Loss(), ["cpu"] * 2)
    wrapper.backward(torch.rand(4, 3), target=torch.rand(4, 1))
    assert calls == [name]


@BACKWARD_CLAUSE
def test_backward_runs_outside_of_autocast(target):
    found = []

    class Recording(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            found.append(torch.is_autocast_enabled("cpu"))
            return grad

    wrapper = target.package.DataParallelWithLoss(
        nn.Linear(3, 1), lambda output, _: Recording.apply(output).float().mean(), ["cpu"] * 2
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wrapper.backward(torch.rand(4, 3), target=None)
    assert found == [False, False]


@BACKWARD_CLAUSE
def test_a_hook_gets_the_gradient_of_the_batch_once(target, topology):
    net = nn.Linear(3, 1).to(topology.device(0))
    gradients = []
    net.weight.register_hook(lambda grad: gradients.append(grad.clone()))
    x = torch.rand(4, 3, device=topology.device(0))
    target.package.DataParallelWithLoss(net, nn.L1Loss(), topology.take(2)).backward(
        x, target=x[:, :1]
    )
    (gradient,) = gradients
    checks.same(gradient, net.weight.grad)


@BACKWARD_CLAUSE
def test_gradients_stay_as_they_were_if_a_backward_raises(target, topology):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("in backward")

    net = nn.Linear(3, 1).to(topology.device(0))
    wrapper = target.package.DataParallelWithLoss(
        net,
        lambda output, labels: (Failing.apply(output) if labels[0] else output).mean(),
        topology.take(2),
    )
    x = torch.rand(4, 3, device=topology.device(0))
    labels = torch.tensor([False, False, True, True], device=topology.device(0))
    with pytest.raises(KeyError, match=r"replica 1(.|\n)*in backward"):
        wrapper.backward(x, target=labels)
    assert [each.grad for each in net.parameters()] == [None, None]


@REFUSED_CLAUSE
@pytest.mark.parametrize("devices", [1, 2])
def test_backward_of_a_frozen_module_is_refused(target, topology, devices):
    net = nn.Linear(3, 1).to(topology.device(0)).requires_grad_(False)
    x = torch.rand(4, 3, device=topology.device(0))
    wrapper = target.package.DataParallelWithLoss(net, nn.L1Loss(), topology.take(devices))
    with pytest.raises(RuntimeError, match=r"requires? grad"):
        wrapper.backward(x, target=x[:, :1])


@REFUSED_CLAUSE
def test_backward_refuses_shared_parameters_that_a_replica_changes(target):
    wrapper = target.package.DataParallelWithLoss(
        nn.Embedding(4, 3, max_norm=0.1), lambda output, _: output.mean(), ["cpu"] * 2
    )
    with pytest.raises(RuntimeError, match=r"'module\.weight'"):
        wrapper.backward(torch.arange(4), target=None)
    assert wrapper.module.module.weight.grad is None


@THREADS_CLAUSE
def test_each_replica_computes_backward_in_the_thread_of_its_forward(target):
    barrier, are_equal = threading.Barrier(3, timeout=30), []

    class Meeting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.thread = threading.get_ident()
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            barrier.wait()
            are_equal.append(ctx.thread == threading.get_ident())
            return grad

    wrapper = target.package.DataParallelWithLoss(
        nn.Linear(3, 1), lambda output, _: Meeting.apply(output).mean(), ["cpu"] * 3
    )
    wrapper.backward(torch.rand(6, 3), target=None)
    assert are_equal == [True] * 3


@REFUSED_CLAUSE
@pytest.mark.parametrize("devices", [1, 2])
def test_backward_of_several_losses_or_without_grad_mode_is_refused(target, topology, devices):
    calls = []
    net = nn.Linear(3, 1).to(topology.device(0))
    net.register_forward_hook(lambda *_: calls.append(1))
    x = torch.rand(4, 3, device=topology.device(0))
    wrap = partial(target.package.DataParallelWithLoss, net, device_ids=topology.take(devices))
    with pytest.raises(ValueError, match="'none'"):
        wrap(nn.L1Loss(reduction="none")).backward(x, target=x[:, :1])
    with pytest.raises(RuntimeError, match="grad mode"), torch.no_grad():
        wrap(nn.L1Loss()).backward(x, target=x[:, :1])
    assert calls == []
