"""What a criterion says about its reduction, and about the number by which its mean divides."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import chain
from types import MethodType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import loss

from .._torch_private import compiled_function, compiled_module, module_has_hooks

Criterion = Callable[[Any, Any], Tensor]

#: The classes whose means are those of cross entropy. PyTorch has the last one from 2.13 on.
_CROSS_ENTROPIES: list[Any] = [nn.CrossEntropyLoss, nn.NLLLoss]
_CROSS_ENTROPIES += filter(None, [getattr(nn, "LinearCrossEntropyLoss", None)])


class _Source(NamedTuple):
    """The module or function that computes a loss, without the objects that only call it."""

    function: Any
    #: The keywords of the partials around it.
    keywords: dict[str, Any]
    #: The modules on the way to it, such as those of ``torch.compile``, and itself if it is one.
    modules: list[nn.Module]

    def option(self, name: str, default: Any = None) -> Any:
        """Return the keyword of a partial, or the attribute of the module."""
        if name in self.keywords:
            return self.keywords[name]
        return getattr(self.function, name, default)


def _find_source(criterion: Any) -> _Source:
    """Follow partials, compiled code, and the methods ``forward`` and ``__call__``."""
    keywords: dict[str, Any] = {}
    modules = []
    while True:
        following: Any = None
        if isinstance(criterion, nn.Module):
            modules.append(criterion)
            following = compiled_module(criterion)
        elif isinstance(criterion, MethodType) and isinstance(criterion.__self__, nn.Module):
            kind = type(criterion.__self__)
            if criterion.__func__ in (kind.forward, kind.__call__):
                following = criterion.__self__
        elif isinstance(criterion, partial) and not criterion.args:
            keywords = {**criterion.keywords, **keywords}
            following = criterion.func
        else:
            following = compiled_function(criterion)
        if following is None:
            return _Source(criterion, keywords, modules)
        criterion = following


def reduction_of(criterion: Criterion, default: str) -> str:
    """Return the reduction that ``criterion`` names, or ``default``."""
    source = _find_source(criterion)
    # The old options of PyTorch's losses. As keywords they overrule the reduction.
    averages, reduces = source.option("size_average"), source.option("reduce")
    is_used = source.keywords.keys() & {"size_average", "reduce"} or not source.option("reduction")
    if is_used and bool in (type(averages), type(reduces)):
        return "none" if reduces is False else "sum" if averages is False else "mean"
    reduction: str = source.option("reduction", default)
    return reduction


def counts_targets(criterion: Criterion) -> bool:
    """Return whether means of ``criterion`` are those of cross entropy over targets.

    A forward of its own could count other targets, and hooks would see the losses of all targets.
    """
    function, keywords, modules = _find_source(criterion)
    if not isinstance(function, nn.Module):
        return function is functional.cross_entropy or function is functional.nll_loss
    kinds = [kind for kind in _CROSS_ENTROPIES if isinstance(function, kind)]
    return (
        any(type(function).forward is kind.forward for kind in kinds)
        and "forward" not in vars(function)
        and type(function).__call__ is nn.Module.__call__
        and not keywords
        and not any(map(module_has_hooks, chain(*(each.modules() for each in modules))))
    )


def losses_and_weights(criterion: Criterion, output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of cross entropy, and the weights by whose sum its mean divides."""
    source = _find_source(criterion)
    function: Any = source.function
    if isinstance(function, nn.Module):
        function = copy.copy(function)
        function.reduction = "none"
    else:
        options = {**source.keywords, "size_average": None, "reduce": None, "reduction": "none"}
        function = partial(function, **options)
    ignored = source.option("ignore_index")
    # In uint8, -100 would be 156, and an index would be a mask.
    classes = target.long()
    counted = classes != (-100 if ignored is None else ignored)
    weight = source.option("weight")
    weights: Any = counted if weight is None else weight[classes.where(counted, 0)] * counted
    return function(output, target), weights


def check_mean(criterion: Criterion) -> None:
    """Raise ValueError if the mean of ``criterion`` may divide by another number than rows.

    :func:`counts_targets` is false for ``criterion``. The means of PyTorch's other losses divide
    by rows, or by the elements of rows.
    """
    function = _find_source(criterion).function
    if isinstance(function, nn.Module):
        is_own = "forward" in vars(function) or type(function).__call__ is not nn.Module.__call__
        code = None if is_own else getattr(type(function), "forward", None)
    else:
        code = function
    variables = getattr(code, "__globals__", None)
    is_loss_of_torch = variables is vars(loss) or variables is vars(functional)
    if is_loss_of_torch and not hasattr(function, "ignore_index"):
        return
    name = getattr(function, "__name__", type(function).__name__)
    raise ValueError(
        f"the mean of {name} may not be one over rows: it is no loss of PyTorch, or it has hooks. "
        "Pass mean_over='rows', or as mean_over a function of output and target that returns the "
        "number by which the criterion divides; or let it return sums, with reduction='sum'"
    )
