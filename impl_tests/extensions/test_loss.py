"""impl.extras.loss: loss and gradients are those of the module and the criterion alone."""

import copy
import warnings
from collections import UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

import impl
from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.strategies.small_modules import Calls

CLASSES = 5
IGNORED = -100
DEVICES = st.sampled_from([2, 3, 4, 1, ["cpu"], ["cpu"] * 3])
REDUCTIONS = st.sampled_from(["mean", "sum", "none"])

Pair = namedtuple("Pair", "first second")


@dataclass
class Fields:
    """A container that torch.utils._pytree does not know."""

    value: Any


class Form(NamedTuple):
    """A form of an argument: its value for ``rows``, and how a module reads the rows from it."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def packed(rows):
    """Pack sequences of 1, 3, 2, 1, … steps. The sum of the steps of a sequence is a row."""
    lengths = [1 + 2 * i % 3 for i in range(len(rows))]
    sequences = [row.expand(n, -1) / n for row, n in zip(rows, lengths, strict=True)]
    return pack_sequence(sequences, enforce_sorted=False)


FORMS = {
    "tensor": Form(lambda x: x, lambda x: x),
    "dict": Form(lambda x: {"x": x}, lambda value: value["x"]),
    "dataclass": Form(Fields, lambda value: value.value),
    "UserDict": Form(lambda x: UserDict(x=x), lambda value: value["x"]),
    "named tuple": Form(lambda x: Pair(1, x), lambda value: value.second),
    "0-dim first": Form(lambda x: [torch.tensor(2.0), x], lambda value: value[1] * value[0]),
    "whole first": Form(
        lambda x: [impl.Whole(torch.tensor([3.0, 1.0, 4.0])), x],
        lambda value: value[1] * value[0].sum(),
    ),
    "columns": Form(lambda x: impl.SplitAlong(x.T, 1), lambda value: value.T),
    "packed": Form(packed, lambda value: pad_packed_sequence(value, batch_first=True)[0].sum(1)),
}
#: The forms of outputs. A replica returns no markers.
OUTPUTS = ["tensor", "dict", "dataclass", "UserDict", "named tuple"]


def apply_layer(module, value):
    """Apply a layer to an input of a form; return an output of a form."""
    rows = FORMS[module.input_form].read(value)
    return FORMS[module.output_form].write(module.layer(rows))


def compare_rows(criterion, *values):
    """Return the distance of an output and a target, each of a form."""
    output, target = (
        FORMS[name].read(value) for name, value in zip(criterion.forms, values, strict=True)
    )
    return criterion.distance(output, target, reduction=criterion.reduction)


def without_markers(value):
    kinds = (impl.Whole, impl.SplitAlong)
    if isinstance(value, kinds):
        return value.value
    return [without_markers(each) for each in value] if type(value) is list else value


def place(topology, devices):
    return topology.take(devices) if isinstance(devices, int) else devices


def compare(topology, devices, net, criterion, x, target, change=lambda _: None, **options):
    """Compare loss and gradients with those of ``net`` and ``criterion`` alone.

    ``change`` is called with the criterion after the wrapper has been constructed.
    """
    devices = place(topology, devices)
    alone, criterion_alone = copy.deepcopy((net, criterion))
    net = net.to(devices[0])
    if isinstance(criterion, nn.Module):
        criterion.to(devices[0])
    wrapper = impl.DataParallelWithLoss(net, criterion, devices, **options)
    for each in (criterion, criterion_alone):
        change(each)
    output = alone(without_markers(x))
    losses = wrapper(x, target=target), criterion_alone(output, without_markers(target))
    found = []
    for loss, module in zip(losses, (net, alone), strict=True):
        loss.sum().backward()
        gradients = [each.grad.cpu() for each in module.parameters()]
        found.append(snapshot([loss.detach().cpu(), gradients], {}, strides=False))
    checks.same(*found, tolerance=checks.LAYER)


@given(
    rows=st.integers(1, 9),
    devices=DEVICES,
    input_form=st.sampled_from([*FORMS]),
    target_form=st.sampled_from([name for name in FORMS if name != "packed"]),
    output_form=st.sampled_from(OUTPUTS),
    function=st.sampled_from([functional.mse_loss, functional.smooth_l1_loss]),
    reduction=REDUCTIONS,
    weights=st.sampled_from([None, [1, 6, 3], [2, 5, 1]]),
)
@example(7, ["cpu"] * 3, "tensor", "dataclass", "tensor", functional.mse_loss, "mean", None)
@example(7, ["cpu"] * 3, "UserDict", "UserDict", "tensor", functional.mse_loss, "mean", None)
@example(7, ["cpu"] * 3, "tensor", "0-dim first", "tensor", functional.mse_loss, "mean", None)
@example(7, ["cpu"] * 3, "tensor", "whole first", "tensor", functional.mse_loss, "mean", None)
@example(0, ["cpu"] * 3, "tensor", "tensor", "tensor", functional.mse_loss, "mean", None)
@example(7, ["cpu"] * 3, "packed", "tensor", "tensor", functional.mse_loss, "mean", None)
def test_loss_and_gradients_of_containers(
    topology, rows, devices, input_form, target_form, output_form, function, reduction, weights
):
    many = len(place(topology, devices)) == 3
    compare(
        topology,
        devices,
        Calls(
            apply_layer,
            layer=nn.Linear(3, CLASSES),
            input_form=input_form,
            output_form=output_form,
        ),
        Calls(compare_rows, distance=function, forms=(output_form, target_form), reduction="mean"),
        FORMS[input_form].write(torch.rand(rows, 3)),
        FORMS[target_form].write(torch.rand(rows, CLASSES)),
        lambda criterion: setattr(criterion, "reduction", reduction),
        chunk_sizes=weights if many else None,
        mean_over="rows",
    )


#: Classes that change nothing.
Subclass, Negative = (type("Subclass", (kind,), {}) for kind in (nn.CrossEntropyLoss, nn.NLLLoss))


class Holder(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.held = nn.CrossEntropyLoss(**options)

    def forward(self, output, target):
        return self.held(output, target)


#: The old options that mean the same as a reduction.
OLD = {"mean": {"reduce": True}, "sum": {"size_average": False}, "none": {"reduce": False}}


def with_old_options(reduction, **options):
    return partial(functional.cross_entropy, **options, **OLD[reduction])


def with_layer(ignore_index, **options):
    ignored = None if ignore_index == IGNORED else ignore_index
    return nn.LinearCrossEntropyLoss(CLASSES, CLASSES, ignore_index=ignored, **options)


#: Criteria that divide by the class weights of the targets that are not ignored.
CROSS_ENTROPIES = {
    "cross entropy": nn.CrossEntropyLoss,
    "smoothed": partial(nn.CrossEntropyLoss, label_smoothing=0.1),
    "subclass": Subclass,
    "negative log likelihood": nn.NLLLoss,
    "subclass of NLLLoss": Negative,
    "held": Holder,
    "function": partial(partial, functional.cross_entropy),
    "function nll_loss": partial(partial, functional.nll_loss),
    "function with old options": with_old_options,
    "method": lambda **options: nn.CrossEntropyLoss(**options).forward,
    "partial of a module": lambda **options: partial(nn.CrossEntropyLoss(**options)),
    # PyTorch has it from 2.13 on.
    "with a layer": with_layer if hasattr(nn, "LinearCrossEntropyLoss") else Subclass,
}
#: Criteria whose weights are not copied to the devices of replicas.
UNWEIGHTED = [name for name in CROSS_ENTROPIES if name[:5] in ("funct", "metho", "parti")]


@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
@given(
    labels=st.lists(st.sampled_from([*range(CLASSES), IGNORED]), min_size=1, max_size=9),
    devices=DEVICES,
    kind=st.sampled_from([*CROSS_ENTROPIES]),
    weighted=st.booleans(),
    ignored=st.sampled_from([IGNORED, 2]),
    reduction=REDUCTIONS,
)
@example([IGNORED, IGNORED], 2, "smoothed", True, IGNORED, "mean")
@example([1, 2, IGNORED, IGNORED], 2, "smoothed", False, IGNORED, "mean")
@example([0, 0, 1, 2], 2, "smoothed", True, IGNORED, "mean")
@example([IGNORED], 1, "cross entropy", False, IGNORED, "mean")
@example([1, IGNORED, IGNORED, IGNORED, 2, 3, 4], ["cpu"] * 3, "subclass", False, IGNORED, "mean")
@example([1, IGNORED, IGNORED, IGNORED, 2, 3, 4], ["cpu"] * 3, "function", False, IGNORED, "mean")
@example([1, IGNORED, IGNORED, IGNORED, 2, 3, 4], ["cpu"] * 3, "method", False, IGNORED, "mean")
@example([1, IGNORED, IGNORED, IGNORED, 2, 3, 4], ["cpu"] * 3, "held", True, IGNORED, "mean")
@example([1, 2, IGNORED, IGNORED], 2, "with a layer", True, IGNORED, "mean")
@example([1, 2, 3, 3], 2, "partial of a module", False, IGNORED, "sum")
@example([1, 2, 3, 3], 2, "function with old options", False, IGNORED, "sum")
@example([1, 2, 3, 3], 2, "function with old options", False, IGNORED, "none")
def test_means_of_cross_entropy_count_targets(
    topology, labels, devices, kind, weighted, ignored, reduction
):
    labels = torch.tensor(labels)
    if ignored != IGNORED:
        labels = labels.where(labels != IGNORED, ignored)
    is_weighted = weighted and kind not in UNWEIGHTED
    weight = torch.arange(CLASSES, dtype=torch.float) if is_weighted else None

    def count(_, target):
        # The weight of a class is its index.
        return ((target if is_weighted else 1) * (target != ignored)).sum()

    compare(
        topology,
        devices,
        nn.Sequential(nn.Linear(3, CLASSES), nn.LogSoftmax(1)),
        CROSS_ENTROPIES[kind](weight=weight, ignore_index=ignored, reduction=reduction),
        torch.rand(len(labels), 3),
        labels,
        mean_over=count if kind == "held" else None,
        reduction=reduction,
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_targets_of_uint8_are_classes(topology, weighted):
    count = 200  # -100 is 156 in uint8.
    compare(
        topology,
        2,
        nn.Linear(3, count),
        nn.CrossEntropyLoss(torch.rand(count) if weighted else None),
        torch.rand(4, 3),
        torch.tensor([156, 1, 2, 156], dtype=torch.uint8),
    )


def mean_over_positive_rows(output, target, least):
    is_positive = target > 0
    return (output[:, 0] ** 2 * is_positive).sum() / is_positive.sum().clamp(min=least)


def sum_over_positive_rows(output, target):
    total = functional.cross_entropy(output, target, reduction="sum")
    return total / (target > 0).sum().clamp(min=1)


#: Criteria that divide by the number of positive targets.
DIVIDED = {
    "mean": partial(mean_over_positive_rows, least=0),
    "mean, or sum of no rows": partial(mean_over_positive_rows, least=1),
    "sum over all rows": sum_over_positive_rows,
}


@given(
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=7),
    devices=DEVICES,
    kind=st.sampled_from([*DIVIDED]),
)
@example(labels=[1, 1, 0], devices=2, kind="mean")
@example(labels=[0, 0, 0], devices=2, kind="mean, or sum of no rows")
@example(labels=[0, 0, 0, 1, 0, 2], devices=2, kind="sum over all rows")
@example(labels=[0, 0, 0], devices=2, kind="sum over all rows")
def test_means_divide_by_the_sum_of_mean_over(topology, labels, devices, kind):
    assume(kind != "mean" or any(labels))
    compare(
        topology,
        devices,
        nn.Linear(3, CLASSES),
        DIVIDED[kind],
        torch.rand(len(labels), 3),
        torch.tensor(labels),
        mean_over=lambda _, target: (target > 0).sum(),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_may_be_an_integer_if_a_chunk_has_no_targets(topology, reduction):
    def criterion(output, target):
        found = target > 0
        if not found.any():
            return torch.tensor(0, device=output.device)
        squares = (output[found] - target[found]).square()
        return squares.mean() if reduction == "mean" else squares.sum()

    x, target = torch.arange(4.0)[:, None], torch.tensor([0.0, 0, 1, 5])[:, None]
    options = {"reduction": reduction, "mean_over": lambda _, target: (target > 0).sum()}
    compare(topology, 2, nn.Linear(1, 1), criterion, x, target, **options)


def test_mean_over_is_called_before_the_criterion_changes_the_target():
    def criterion(output, target):
        return functional.cross_entropy(output, target.masked_fill_(target == 1, IGNORED))

    labels = torch.tensor([0, 1, 1, 1, 2])
    wrapper = impl.DataParallelWithLoss(
        nn.Identity(), criterion, ["cpu"] * 2, mean_over=lambda _, target: (target != 1).sum()
    )
    x = torch.rand(5, CLASSES)
    found = wrapper(x, target=labels.clone())
    checks.same(found, criterion(x, labels), tolerance=checks.LAYER)


PADDED = torch.tensor([1, IGNORED, 3, 3, 2, 3, 4])
#: Criteria and targets.
COMPILED = {
    "cross entropy": (nn.CrossEntropyLoss(), PADDED),
    "probabilities": (nn.CrossEntropyLoss(torch.arange(5.0)), torch.rand(7, CLASSES)),
    "function": (partial(functional.cross_entropy, ignore_index=3), PADDED.abs() % CLASSES),
    "other": (nn.MSELoss(), torch.rand(7, CLASSES)),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
@pytest.mark.parametrize("kind", COMPILED)
def test_criteria_may_be_compiled(kind):
    criterion, target = COMPILED[kind]
    compiled = torch.compile(criterion, backend="eager")
    compare(None, ["cpu"] * 3, nn.Linear(3, CLASSES), compiled, torch.rand(7, 3), target)


@pytest.mark.parametrize("labels", [None, {"words": ["a", "b"]}])
def test_means_without_a_tensor_in_the_target_count_rows_of_the_input(topology, labels):
    x = torch.tensor([1.0, 2.0, 6.0], device=topology.device(0))
    wrapper = impl.DataParallelWithLoss(
        nn.Identity(), lambda output, target: output.mean(), topology.take(2), mean_over="rows"
    )
    checks.same(wrapper(x, target=labels), x.mean())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_is_on_the_output_device_and_has_no_dimensions(topology, reduction):
    x = torch.rand(4, 3, device=topology.device(0))
    wrapper = impl.DataParallelWithLoss(
        nn.Linear(3, 2).to(topology.device(0)),
        partial(functional.mse_loss, reduction=reduction),
        topology.take(2),
        output_device=topology.device(1),
    )
    loss = wrapper(x, target=x[:, :2])
    checks.same((loss.device, loss.shape), (topology.device(1), torch.Size([])))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_rows_may_be_in_another_dimension(topology, reduction):
    x = torch.rand(2, 5, device=topology.device(0))
    criterion = nn.MSELoss(reduction=reduction)
    wrapper = impl.DataParallelWithLoss(nn.Identity(), criterion, topology.take(2), dim=1)
    checks.same(wrapper(x, target=x + 1), criterion(x, x + 1), tolerance=checks.LAYER)


@pytest.mark.parametrize("dim", [1, -1])
def test_batchmean_is_refused_if_rows_are_in_another_dimension(dim):
    x = torch.rand(4, 4)
    criterion = partial(functional.kl_div, reduction="batchmean")
    refused = impl.DataParallelWithLoss(nn.Identity(), criterion, ["cpu"] * 2, dim=dim)
    wrapper = impl.DataParallelWithLoss(nn.Identity(), criterion, ["cpu"] * 2)
    for call, target in (
        (refused, x),
        (refused, impl.Whole(x)),
        (wrapper, impl.SplitAlong(x, dim)),
    ):
        with pytest.raises(ValueError, match="'batchmean' divides by the size of dim 0"):
            call(x, target=target)
    same_dim = wrapper(x, target=impl.SplitAlong(x, -2))
    checks.same(same_dim, criterion(x, x), tolerance=checks.LAYER)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_that_is_not_split_is_computed_once(topology, reduction):
    calls, x = [], torch.rand(3, 2)
    net = nn.Identity()
    net.register_forward_hook(lambda *_: calls.append(1))
    criterion = nn.L1Loss(reduction=reduction)
    wrapper = impl.DataParallelWithLoss(net, criterion, ["cpu"] * 2)
    checks.same(wrapper(impl.Whole(x), target=impl.Whole(-x)), criterion(x, -x))
    assert len(calls) == 1


@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, nn.MultiMarginLoss])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_only_numbers_are_gathered(topology, kind, reduction):
    gathered = []

    class Recording(impl.DataParallelWithLoss):
        def gather(self, outputs, output_device):
            leaves = tree_leaves(outputs)
            gathered.extend(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
            return super().gather(outputs, output_device)

    wrapper = Recording(
        nn.Linear(3, CLASSES).to(topology.device(0)), kind(reduction=reduction), topology.take(3)
    )
    wrapper(torch.rand(7, 3, device=topology.device(0)), target=torch.arange(7) % CLASSES)
    assert {*gathered} == {1}


def test_hooks_of_a_criterion_get_the_mean_of_each_chunk():
    seen, criterion = [], nn.L1Loss()
    criterion.register_forward_hook(lambda _, args, loss: seen.append((len(args[0]), loss)))
    criterion.register_forward_hook(lambda _, args, loss: loss * 2)
    x = torch.tensor([1.0, 2.0, 6.0])
    wrapper = impl.DataParallelWithLoss(nn.Identity(), criterion, ["cpu"] * 2, in_turn=True)
    checks.same(wrapper(x, target=x * 0), x.mean() * 2)
    checks.same(seen, [(2, torch.tensor(1.5)), (1, torch.tensor(6.0))])


@pytest.mark.parametrize("devices", [1, 2])
def test_module_and_state_are_those_of_data_parallel(topology, devices):
    net, devices = nn.Linear(3, CLASSES), topology.take(devices)
    wrapper = impl.DataParallelWithLoss(net, nn.CrossEntropyLoss(), devices)
    assert wrapper.module is net
    expected = snapshot(impl.DataParallel(net, devices).state_dict(), {})
    checks.same(snapshot(wrapper.state_dict(), {}), expected)


@pytest.mark.parametrize("devices", [1, 2])
def test_parameters_and_buffers_of_a_criterion_belong_to_the_wrapper(topology, devices):
    criterion = nn.CrossEntropyLoss(torch.ones(CLASSES))
    criterion.scale = nn.Parameter(torch.ones(()))
    wrapper = impl.DataParallelWithLoss(nn.Linear(3, CLASSES), criterion, topology.take(devices))
    wrapper.to(topology.device(0))
    assert criterion.scale in {*wrapper.parameters()}
    x, labels = torch.rand(6, 3, device=topology.device(0)), torch.arange(6) % CLASSES
    expected = criterion(wrapper.module(x), labels.to(x.device))
    checks.same(wrapper(x, target=labels), expected, tolerance=checks.LAYER)


def test_module_and_criterion_may_be_replaced():
    x = torch.rand(5, 3)
    wrapper = impl.DataParallelWithLoss(nn.Linear(3, 2), nn.L1Loss(), ["cpu"] * 2)
    wrapper.module, wrapper.criterion = nn.Linear(3, 2), nn.MSELoss(reduction="sum")
    expected = wrapper.criterion(wrapper.module(x), x[:, :2])
    checks.same(wrapper(x, target=x[:, :2]), expected, tolerance=checks.LAYER)


@torch.no_grad()
def test_kept_replicas_compute_the_loss_of_the_batch():
    net, x = nn.Linear(3, 2), torch.rand(5, 3)
    wrapper = impl.DataParallelWithLoss(net, nn.L1Loss(), ["cpu"] * 2)
    expected = functional.l1_loss(net(x), x[:, :2])
    with wrapper.hold():
        for _ in range(2):
            checks.same(wrapper(x, target=x[:, :2]), expected, tolerance=checks.LAYER)
        wrapper.criterion.reduction = "sum"
        checks.same(wrapper(x, target=x[:, :2]), expected * 10, tolerance=checks.LAYER)


@torch.no_grad()
@pytest.mark.parametrize("kind", [nn.MSELoss, nn.CrossEntropyLoss])
def test_map_yields_the_loss_of_each_batch(kind):
    net, x = nn.Linear(3, CLASSES), torch.rand(5, 3)
    target = torch.arange(5) if kind is nn.CrossEntropyLoss else torch.rand(5, CLASSES)
    wrapper = impl.DataParallelWithLoss(net, kind(), ["cpu"] * 2)
    batches = [{"input": x[:rows], "target": target[:rows]} for rows in (2, 3, 5)]
    expected = [kind()(net(x[:rows]), target[:rows]) for rows in (2, 3, 5)]
    checks.same([*wrapper.map(batches)], expected, tolerance=checks.LAYER)


def test_a_subclass_may_split_the_batch_in_another_way():
    class Reversed(impl.DataParallelWithLoss):
        def scatter(self, inputs, kwargs, device_ids):
            return impl.scatter_gather.scatter_kwargs(
                inputs, kwargs, device_ids, chunk_sizes=[1, 4]
            )

    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0])
    wrapper = Reversed(nn.Identity(), mean_of, ["cpu"] * 2, mean_over="rows")
    checks.same(wrapper(x, target=None), x.mean())


def own(kind, method):
    """Return a criterion of a subclass that overrides a method."""
    return type("Own", (kind,), {method: lambda self, *values: None})()


class Average(nn.L1Loss):
    """A criterion that returns a mean, also with the reduction "none"."""

    def forward(self, output, target):
        return super().forward(output, target).mean()


def with_forward(criterion):
    forward = criterion.forward
    criterion.forward = lambda *args: forward(*args) * 2
    return criterion


def with_hook(criterion):
    criterion.register_forward_hook(lambda *_: None)
    return criterion


def mean_of(output, _):
    return output.mean()


@wraps(functional.mse_loss)
def doubled(*values):
    return 2 * functional.mse_loss(*values)


def scripted(module):
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return torch.jit.script(module)


X = torch.rand(4, 5)
LABELS = torch.arange(4)
#: Criteria whose means may divide by another number than rows, with their names in the error.
OTHERS = {
    "own forward": (own(nn.CrossEntropyLoss, "forward"), "Own"),
    "own call": (own(nn.CrossEntropyLoss, "__call__"), "Own"),
    "own call of another loss": (own(nn.MSELoss, "__call__"), "Own"),
    "replaced forward": (with_forward(nn.MSELoss()), "MSELoss"),
    "hooks": (with_hook(nn.NLLLoss()), "NLLLoss"),
    "hooks of a partial": (partial(with_hook(nn.NLLLoss())), "NLLLoss"),
    "module": (Holder(), "Holder"),
    "method": (Holder().forward, "Holder"),
    "function": (mean_of, "mean_of"),
    "positional argument of a partial": (partial(functional.mse_loss, X), "partial"),
    "wrapped function": (doubled, "mse_loss"),
    "traced": (torch.fx.symbolic_trace(nn.MSELoss()), "MSELoss"),
    "scripted": (scripted(nn.MSELoss()), "RecursiveScriptModule"),
}


@pytest.mark.parametrize(("criterion", "name"), OTHERS.values(), ids=OTHERS)
def test_a_mean_that_may_not_be_one_over_rows_is_refused(criterion, name):
    wrapper = impl.DataParallelWithLoss(nn.Identity(), criterion, ["cpu"] * 2)
    with pytest.raises(ValueError, match=f"the mean of {name} may not.* Pass mean_over='rows'"):
        wrapper(X, target=LABELS)


def test_a_mean_with_hooks_of_all_modules_is_refused():
    handle = register_module_forward_pre_hook(lambda *_: None)
    try:
        wrapper = impl.DataParallelWithLoss(nn.Identity(), nn.NLLLoss(), ["cpu"] * 2)
        with pytest.raises(ValueError, match="or it has hooks"):
            wrapper(X, target=LABELS)
    finally:
        handle.remove()


#: The criterion, the target and the error.
REFUSALS = {
    "several numbers": (lambda output, _: output, X, r"shape \(2, 5\).*'mean' needs one"),
    "one number": (Average(reduction="none"), X, "one number, and the reduction 'none'"),
    "no tensor": (lambda *_: 0.5, X, "must return a tensor, not float"),
    "rows": (mean_of, X[:3], r"args\[0\] has 4 rows, and target has 3"),
    "rows in fields": (mean_of, Fields(X[:2]), r"4 rows, and target.value has 2"),
}


@pytest.mark.parametrize(("criterion", "target", "text"), REFUSALS.values(), ids=REFUSALS)
def test_a_loss_that_cannot_be_reduced_is_refused(criterion, target, text):
    wrapper = impl.DataParallelWithLoss(nn.Identity(), criterion, ["cpu"] * 2, mean_over="rows")
    with pytest.raises((TypeError, ValueError), match=text):
        wrapper(X, target=target)


def test_a_mean_over_packed_steps_is_refused():
    net = Calls(lambda _, sequences: sequences.data)
    x = pack_sequence([torch.ones(n, 5) for n in (2, 2, 1, 1)])
    wrapper = impl.DataParallelWithLoss(net, nn.HingeEmbeddingLoss(), ["cpu"] * 2)
    with pytest.raises(ValueError, match=r"\[20, 10\] elements for \[2, 2\] rows in the replicas"):
        wrapper(x, target=impl.Whole(torch.ones(())))


def test_an_override_of_scatter_needs_rows_for_a_mean():
    class Texts(impl.DataParallelWithLoss):
        def scatter(self, inputs, kwargs, device_ids):
            return [(X[:3],), (X[3:],)], [kwargs] * 2

    wrapper = Texts(nn.Identity(), mean_of, ["cpu"] * 2, mean_over="rows")
    with pytest.raises(ValueError, match=r"a subclass overrides scatter\(\)"):
        wrapper("text", target=None)


@pytest.mark.parametrize(
    ("criterion", "options", "error", "text"),
    [
        ("mse", {}, TypeError, "criterion must be callable, not str"),
        (nn.L1Loss, {}, TypeError, r"not the class L1Loss: L1Loss\(\)"),
        (nn.L1Loss(), {"reduction": "average"}, ValueError, "'average'"),
        (nn.L1Loss(), {"mean_over": "targets"}, ValueError, "mean_over must be .* not 'targets'"),
        (nn.L1Loss(), {"mean_over": 4}, TypeError, "mean_over must be .* not int"),
    ],
)
def test_wrong_arguments_are_refused(criterion, options, error, text):
    with pytest.raises(error, match=text):
        impl.DataParallelWithLoss(nn.Identity(), criterion, **options)
