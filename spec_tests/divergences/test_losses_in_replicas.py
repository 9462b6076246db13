"""The replicas of DataParallelWithLoss compute the loss. The reference has none: DP-11."""

import copy
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.computed_modules import computed

LOSS_CLAUSE = clause("divergences.DP-11.loss-of-the-batch")
WEIGHTS_CLAUSE = clause("divergences.DP-11.weights-of-means")
MEMORY_CLAUSE = clause("divergences.DP-11.outputs-stay-in-the-replicas")
REFUSED_CLAUSE = clause("divergences.DP-11.refusals")
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


@LOSS_CLAUSE
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_rows_may_be_in_another_dimension(target, topology, reduction):
    x = torch.rand(2, 5, device=topology.device(0))
    criterion = nn.MSELoss(reduction=reduction)
    wrapper = target.package.DataParallelWithLoss(
        nn.Identity(), criterion, topology.take(2), dim=1
    )
    checks.same(wrapper(x, target=x + 1), criterion(x, x + 1), tolerance=checks.LAYER)


@LOSS_CLAUSE
def test_reference_has_no_such_class(reference):
    assert not hasattr(torch.nn.parallel, "DataParallelWithLoss")
