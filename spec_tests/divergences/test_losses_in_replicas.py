"""The replicas of DataParallelWithLoss compute the loss. The reference has none: DP-11."""

import copy
import threading
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.strategies.computed_modules import computed

LOSS_CLAUSE = clause("divergences.DP-11.loss-of-the-batch")
WEIGHTS_CLAUSE = clause("divergences.DP-11.weights-of-means")
MEMORY_CLAUSE = clause("divergences.DP-11.outputs-stay-in-the-replicas")
REFUSED_CLAUSE = clause("divergences.DP-11.refusals")
BACKWARD_CLAUSE = clause("divergences.DP-11.backward")
THREADS_CLAUSE = clause("divergences.DP-11.threads-of-backward")
CLASSES = 5
IGNORED = -100
DEVICES = st.sampled_from([2, 3, 4, 1, ["cpu"], ["cpu"] * 3])


@dataclass(frozen=True)
class WithNames:
    """An output that no function can gather."""

    scores: object


class Net(nn.Module):
    """A layer with two inputs and an output that is a tuple with an object."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, CLASSES)

    def forward(self, x, scale=1):
        scores = self.layer(x) * scale
        return scores, WithNames({"squares": scores.square()})


def distance(output, target):
    scores, named = output
    return functional.l1_loss(scores, target["scores"]) + functional.mse_loss(
        named.scores["squares"], target["squares"][0]
    )


def losses_and_gradients(target, topology, devices, net, criterion, inputs, labels, **options):
    """Return loss and gradients of the wrapper, and those of the module on one device."""
    placed = topology.take(devices) if isinstance(devices, int) else devices
    move = partial(torch.utils._pytree.tree_map_only, torch.Tensor, lambda x: x.to(placed[0]))
    inputs, labels = move(inputs), move(labels)
    if isinstance(criterion, nn.Module):
        criterion = criterion.to(placed[0])
    alone, net = copy.deepcopy(net).to(placed[0]), copy.deepcopy(net).to(placed[0])
    wrapper = target.package.DataParallelWithLoss(net, criterion, placed, **options)
    found = wrapper(*inputs, target=labels), criterion(alone(*inputs), labels)
    for loss in found:
        loss.sum().backward()
    return [
        snapshot([loss.detach(), [each.grad for each in module.parameters()]], {}, strides=False)
        for loss, module in zip(found, (net, alone), strict=True)
    ]


@LOSS_CLAUSE
@given(
    rows=st.integers(1, 9),
    devices=DEVICES,
    reduction=st.sampled_from(["mean", "sum", "none"]),
    kind=st.sampled_from([nn.MSELoss, nn.SmoothL1Loss, nn.BCEWithLogitsLoss]),
)
def test_loss_and_gradients_are_those_of_the_batch(
    target, topology, rows, devices, reduction, kind
):
    labels = torch.rand(rows, CLASSES)
    found, expected = losses_and_gradients(
        target,
        topology,
        devices,
        nn.Linear(3, CLASSES),
        kind(reduction=reduction),
        [torch.rand(rows, 3)],
        labels,
    )
    checks.same(found, expected, tolerance=checks.LAYER)


@LOSS_CLAUSE
@given(rows=st.integers(1, 9), devices=DEVICES)
def test_inputs_outputs_and_targets_may_be_nested(target, topology, rows, devices):
    labels = {"scores": torch.rand(rows, CLASSES), "squares": [torch.rand(rows, CLASSES)]}
    inputs = [torch.rand(rows, 3), torch.rand(rows, 1)]
    found, expected = losses_and_gradients(
        target, topology, devices, Net(), distance, inputs, labels
    )
    checks.same(found, expected, tolerance=checks.LAYER)


@LOSS_CLAUSE
@pytest.mark.parametrize("chunk_sizes", [[1, 0, 5], [0, 6, 0], [3, 2, 1]])
def test_chunks_may_have_any_sizes(target, topology, chunk_sizes):
    found, expected = losses_and_gradients(
        target,
        topology,
        3,
        nn.Linear(3, CLASSES),
        nn.MSELoss(),
        [torch.rand(6, 3)],
        torch.rand(6, CLASSES),
        chunk_sizes=chunk_sizes,
    )
    checks.same(found, expected, tolerance=checks.LAYER)


@LOSS_CLAUSE
def test_gradients_of_several_batches_are_accumulated(target, topology):
    net = nn.Linear(3, 1).to(topology.device(0))
    alone = copy.deepcopy(net)
    wrapper = target.package.DataParallelWithLoss(net, nn.MSELoss(), topology.take(3))
    for rows in (2, 5):
        x = torch.rand(rows, 3, device=topology.device(0))
        (wrapper(x, target=x[:, :1]) / 2).backward()
        (nn.functional.mse_loss(alone(x), x[:, :1]) / 2).backward()
    checks.same(net.weight.grad, alone.weight.grad, tolerance=checks.LAYER)


@LOSS_CLAUSE
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_is_on_the_output_device_and_has_no_dimensions(target, topology, reduction):
    x = torch.rand(4, 3, device=topology.device(0))
    wrapper = target.package.DataParallelWithLoss(
        nn.Linear(3, 2).to(topology.device(0)),
        lambda output, target: functional.mse_loss(output, target, reduction=reduction),
        topology.take(2),
        output_device=topology.device(1),
        reduction=reduction,
    )
    loss = wrapper(x, target=x[:, :2])
    checks.same((loss.device, loss.shape), (topology.device(1), torch.Size([])))


@WEIGHTS_CLAUSE
@given(
    labels=st.lists(st.sampled_from([*range(CLASSES), IGNORED]), min_size=1, max_size=9),
    devices=DEVICES,
    weighted=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
)
@example(labels=[IGNORED, IGNORED], devices=2, weighted=True, smoothing=0.1)
@example(labels=[1, 2, IGNORED, IGNORED], devices=2, weighted=False, smoothing=0.1)
@example(labels=[IGNORED], devices=1, weighted=False, smoothing=0.0)
def test_means_of_cross_entropy_count_as_on_one_device(
    target, topology, labels, devices, weighted, smoothing
):
    weight = torch.arange(CLASSES, dtype=torch.float) if weighted else None
    found, expected = losses_and_gradients(
        target,
        topology,
        devices,
        nn.Linear(3, CLASSES),
        nn.CrossEntropyLoss(weight, label_smoothing=smoothing),
        [torch.rand(len(labels), 3)],
        torch.tensor(labels),
    )
    checks.same(found, expected, tolerance=checks.LAYER)


@WEIGHTS_CLAUSE
@given(rows=st.integers(1, 5), devices=DEVICES, index=st.sampled_from([2, IGNORED]))
def test_means_over_pixels_count_as_on_one_device(target, topology, rows, devices, index):
    computed(["convolution"])
    found, expected = losses_and_gradients(
        target,
        topology,
        devices,
        nn.Sequential(nn.Conv2d(3, CLASSES, 1), nn.LogSoftmax(1)),
        nn.NLLLoss(ignore_index=index),
        [torch.rand(rows, 3, 2, 3)],
        torch.arange(rows * 6).remainder(CLASSES).view(rows, 2, 3),
    )
    checks.same(found, expected, tolerance=checks.LAYER)


@WEIGHTS_CLAUSE
@given(rows=st.integers(1, 9), devices=DEVICES)
def test_means_over_probabilities_count_rows(target, topology, rows, devices):
    found, expected = losses_and_gradients(
        target,
        topology,
        devices,
        nn.Linear(3, CLASSES),
        nn.CrossEntropyLoss(torch.arange(CLASSES, dtype=torch.float)),
        [torch.rand(rows, 3)],
        torch.rand(rows, CLASSES),
    )
    checks.same(found, expected, tolerance=checks.LAYER)


@WEIGHTS_CLAUSE
@pytest.mark.parametrize("labels", [None, {"words": ["a", "b"]}])
def test_means_without_a_tensor_in_the_target_count_rows_of_the_input(target, topology, labels):
    x = torch.tensor([1.0, 2.0, 6.0], device=topology.device(0))
    wrapper = target.package.DataParallelWithLoss(
        nn.Identity(), lambda output, target: output.mean(), topology.take(2)
    )
    checks.same(wrapper(x, target=labels), x.mean())


@MEMORY_CLAUSE
@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, nn.MultiMarginLoss])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_only_numbers_are_gathered(target, topology, kind, reduction):
    gathered = []

    class Recording(target.package.DataParallelWithLoss):
        def gather(self, outputs, output_device):
            leaves = torch.utils._pytree.tree_leaves(outputs)
            gathered.extend(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
            return super().gather(outputs, output_device)

    wrapper = Recording(
        nn.Linear(3, CLASSES).to(topology.device(0)), kind(reduction=reduction), topology.take(3)
    )
    wrapper(torch.rand(7, 3, device=topology.device(0)), target=torch.arange(7) % CLASSES)
    assert {*gathered} == {1}


@REFUSED_CLAUSE
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_criterion_that_returns_several_numbers_is_refused(target, topology, devices, reduction):
    wrapper = target.package.DataParallelWithLoss(
        nn.Linear(3, 2).to(topology.device(0)),
        lambda output, target: output,
        topology.take(devices),
        reduction=reduction,
    )
    x = torch.rand(4, 3, device=topology.device(0))
    with pytest.raises(ValueError, match=rf"shape \(\d, 2\), and the reduction '{reduction}'"):
        wrapper(x, target=x)


@REFUSED_CLAUSE
def test_an_unknown_reduction_is_refused(target):
    with pytest.raises(ValueError, match="'average'"):
        target.package.DataParallelWithLoss(nn.Identity(), nn.Identity(), reduction="average")


@REFUSED_CLAUSE
def test_a_criterion_that_cannot_be_called_is_refused(target):
    with pytest.raises(TypeError, match="criterion"):
        target.package.DataParallelWithLoss(nn.Identity(), "mse")


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


def loss_and_gradients(compute, net, inputs=()):
    """Return the loss, and the gradients of the parameters and of the inputs."""
    loss = compute()
    tensors = [*net.parameters(), *inputs]
    assert not loss.requires_grad
    return snapshot([loss, [each.grad for each in tensors]], {}, strides=False)


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

        def compute(uses_backward=uses_backward, here=here, arguments=arguments, wrapper=wrapper):
            if uses_backward:
                return wrapper.backward(*arguments, target=here)
            loss = wrapper(*arguments, target=here)
            loss.backward()
            return loss.detach()

        compute()
        found.append(loss_and_gradients(compute, module, arguments))
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


@LOSS_CLAUSE
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_rows_may_be_in_another_dimension(target, topology, reduction):
    x = torch.rand(2, 5, device=topology.device(0))
    criterion = nn.MSELoss(reduction=reduction)
    wrapper = target.package.DataParallelWithLoss(
        nn.Identity(), criterion, topology.take(2), dim=1
    )
    checks.same(wrapper(x, target=x + 1), criterion(x, x + 1), tolerance=checks.LAYER)


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


@LOSS_CLAUSE
def test_reference_has_no_such_class(reference):
    assert not hasattr(torch.nn.parallel, "DataParallelWithLoss")
