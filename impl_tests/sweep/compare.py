"""Compare a module alone with the same module in wrappers on two devices."""

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from impl_tests.consumers.uses import VARIANTS, Variant

#: The largest allowed difference of two elements, relative to the largest element of the tensor,
#: or, for gradients, to the largest element of all gradients.
_TOLERANCE = 1e-3
#: The largest depth of the traversal. It is limited because objects may refer to each other.
_MAX_DEPTH = 9
_LISTED = "listed"


def judge(
    module: nn.Module, inputs: Mapping[str, Any], variants: Mapping[str, Variant] = VARIANTS
) -> dict[str, str]:
    """Compare outputs in evaluation, and gradients in training, with those of ``module`` alone.

    A module that cannot train with the inputs, as one that needs labels, is only evaluated.

    Returns:
        For each wrapper, "equal"; "listed", if the objects of the replicas are listed, and are
        those of the chunks; "mix" and a difference between the batch and its chunks, if the
        module alone has it; "random", if the module alone differs with another seed; otherwise
        the error, or "wrong" and a difference.
    """
    _stop_dropout(module)
    # A forward may keep tensors that `to` does not move, so each run has a module of its own.
    fresh, module = module, copy.deepcopy(module)
    whole, trains = _run_alone(module, inputs)
    chunks = [_map(lambda tensor: tensor.chunk(2)[index], inputs) for index in (0, 1)]  # noqa: B023 # called at once
    parts = [_run(module, module, chunk, trains=trains) for chunk in chunks]
    joined = {
        "outputs": _join([part["outputs"] for part in parts], whole["outputs"]),
        "gradients": torch.stack([part["gradients"] for part in parts]).sum(0),
    }
    mixing = next(_differences(joined, whole, parts), "")
    results = {}
    for name, variant in variants.items():
        try:
            copied = copy.deepcopy(fresh)
            moved = _map(lambda tensor: tensor.to(variant.device), inputs)  # noqa: B023 # called at once
            run = _run(variant.wrap(copied), copied, moved, trains=trains)
        except Exception as error:
            results[name] = f"mix: {mixing}" if mixing else _describe(error)
            continue
        found = {*_differences(run, whole, parts)}
        if found - {_LISTED}:  # Other devices round in another way, and a top-k may differ.
            copied = copy.deepcopy(fresh).to(variant.device)
            alone = _run(copied, copied, moved, trains=trains)
            found = {*_differences(run, alone, parts)}
        if found <= {_LISTED}:
            results[name] = _LISTED if found else "equal"
        elif mixing and {*_differences(run, joined, parts)} <= {_LISTED}:
            results[name] = f"mix: {mixing}"
        else:
            results[name] = f"wrong: {min(found - {_LISTED})}"
    if any(result.startswith("wrong") for result in results.values()):
        again = _run(module, module, inputs, seed=1, trains=trains)
        if [*_differences(again, whole, parts)]:
            results |= {name: "random" for name, each in results.items() if each[:5] == "wrong"}
    return results


def _stop_dropout(module: nn.Module) -> None:
    """Set all probabilities to 0: replicas draw other random numbers than one device."""
    for member in module.modules():
        for name, value in vars(member).items():
            if isinstance(value, float) and ("drop" in name or name == "p"):
                setattr(member, name, 0.0)


def _run_alone(module: nn.Module, inputs: Any) -> tuple[dict[str, Any], bool]:
    """Return the results of a module, and whether it can train with the inputs."""
    try:
        return _run(module, module, inputs), True
    except Exception:
        return _run(module, module, inputs, trains=False), False


def _describe(error: Exception) -> str:
    """Return the class of ``error`` and the line that has the cause."""
    lines = str(error).strip().splitlines() or [""]
    cause = lines[-1] if lines[0].startswith("Caught ") else lines[0]
    return f"{type(error).__name__}: {cause}"[:200]


def _map(function: Callable[[Tensor], Tensor], inputs: Any) -> Any:
    return tree_map_only(Tensor, lambda tensor: function(tensor).clone(), inputs)


def _run(
    call: nn.Module, module: nn.Module, inputs: Any, *, seed: int = 0, trains: bool = True
) -> dict[str, Any]:
    """Return the tree of the outputs in evaluation, and the gradients of a loss in training."""
    module.eval()
    with torch.no_grad():
        outputs = _tree(_call(call, inputs, seed))
    if not trains:
        return {"outputs": outputs, "gradients": torch.zeros(0)}
    module.train()
    for member in module.modules():
        if isinstance(member, _BatchNorm):
            member.eval()
    module.zero_grad(set_to_none=True)
    trained = [each for each in _tensors(_tree(_call(call, inputs, seed))) if each.dim()]
    losses = [
        each[each.isfinite()].float().square().sum().cpu()
        for each in trained
        if each.requires_grad
    ]
    if losses:
        torch.autograd.backward(torch.stack(losses).sum())
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in weights]
    flat = [gradient.to_dense().cpu().flatten() for gradient in gradients]
    return {"outputs": outputs, "gradients": torch.cat(flat) if flat else torch.zeros(0)}


def _call(call: nn.Module, inputs: Any, seed: int) -> Any:
    for function in (torch.manual_seed, random.seed, numpy.random.seed):
        function(seed)
    return call(**_map(lambda tensor: tensor, inputs))


def _tree(value: Any, depth: int = 0) -> Any:
    """Return ``value`` with each container or object as the dict of its members with tensors."""
    if isinstance(value, Tensor):
        return value if value.requires_grad else value.cpu().clone()
    members: Mapping[Any, Any] = {}
    if isinstance(value, Mapping):
        members = value
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        members = value._asdict()
    elif isinstance(value, list | tuple):
        members = dict(enumerate(value))
    elif not isinstance(value, type | nn.Module):
        members = getattr(value, "__dict__", {})
    if depth > _MAX_DEPTH:
        return None
    trees = {name: _tree(member, depth + 1) for name, member in members.items()}
    return {name: tree for name, tree in trees.items() if tree is not None} or None


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    for member in tree.values() if isinstance(tree, dict) else ():
        yield from _tensors(member)


def _join(parts: list[Any], whole: Any) -> Any:
    """Join the outputs and gradients of the chunks by hand, along the dimension of the rows."""
    if isinstance(whole, dict):
        members = [part if isinstance(part, dict) else {} for part in parts]
        if isinstance(next(iter(whole)), int) and len(whole) == sum(map(len, members)):
            return dict(enumerate(each for part in members for each in part.values()))
        return {name: _join([part.get(name) for part in members], whole[name]) for name in whole}
    if not all(isinstance(part, Tensor) and part.dim() == whole.dim() for part in parts):
        return None
    if whole.dim() == 0:
        return torch.stack(parts)
    for dim in range(whole.dim()):
        others = {(*part.shape[:dim], *part.shape[dim + 1 :]) for part in (*parts, whole)}
        if len(others) == 1 and whole.shape[dim] == sum(part.shape[dim] for part in parts):
            return torch.cat(parts, dim)
    return parts[0]


def _differences(found: Any, expected: Any, parts: list[Any], path: str = "") -> Iterator[str]:
    """Yield a text for each difference, and "listed" for each list of the replicas' objects."""
    if isinstance(expected, dict):
        found = found if isinstance(found, dict) else {}
        if [*found] == [*range(len(parts))] and isinstance(next(iter(expected)), str):
            yield _LISTED
            for one, part in zip(found.values(), parts, strict=True):
                yield from _differences(one, part, [part], path)
            return
        for name in {**expected, **found}:
            members = [part.get(name) if isinstance(part, dict) else None for part in parts]
            inner = f"{path}.{name}" if path else str(name)
            yield from _differences(found.get(name), expected.get(name), members, inner)
    elif isinstance(expected, Tensor):
        if expected.dim() == 0 and isinstance(found, Tensor) and found.dim() == 1:
            expected = torch.stack(parts)  # A scalar of each replica.
        yield from _compare_tensors(found, expected, path)
    elif found is not None:
        yield f"{path} is new"


def _compare_tensors(found: Any, expected: Tensor, path: str) -> Iterator[str]:
    if not isinstance(found, Tensor):
        yield f"{path} is missing"
    elif found.shape != expected.shape:
        yield f"{path} has the shape {[*found.shape]}, not {[*expected.shape]}"
    elif not _is_close(found, expected):
        difference = (found.double() - expected.double()).abs().max().item()
        yield f"{path} differs by {difference:.1e}"


def _is_close(found: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point() or found.dtype != expected.dtype:
        return torch.equal(found, expected)
    finite = expected[expected.isfinite()]
    scale = finite.abs().max().item() if finite.numel() else 0.0
    return torch.allclose(found, expected, rtol=0, atol=_TOLERANCE * scale + 1e-6, equal_nan=True)
