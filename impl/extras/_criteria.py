"""What a criterion says about its reduction, and about the number by which its mean divides."""

import copy
from collections.abc import Callable, Iterator
from dis import get_instructions
from functools import partial
from itertools import chain
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from .._attributes import slots_of
from .._torch_private import compiled_function, compiled_module, module_has_hooks

Criterion = Callable[[Any, Any], Tensor]

#: The largest number of objects of a criterion that are searched.
_MOST_OBJECTS = 10_000
#: Objects that hold no options of a loss. The parameters of a module are not searched.
_NOT_SEARCHED = (type(None), type, ModuleType, Tensor, str, bytes, int, float)
#: The attributes of every module, which are no options.
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_TRACED = (torch.jit.ScriptModule, torch.jit.ScriptFunction, fx.GraphModule)


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
    found: str = source.option("reduction", default)
    return found


def counts_targets(criterion: Criterion) -> bool:
    """Return whether means of ``criterion`` are those of cross entropy.

    That is, the mean over the targets that are not ignored, weighted by their classes. A forward
    of its own could count other targets, and hooks would see the losses of all targets.
    """
    function, keywords, modules = _find_source(criterion)
    if not isinstance(function, nn.Module):
        return function is functional.cross_entropy or function is functional.nll_loss
    kinds = [kind for kind in (nn.CrossEntropyLoss, nn.NLLLoss) if isinstance(function, kind)]
    return (
        any(type(function).forward is kind.forward for kind in kinds)
        and "forward" not in vars(function)
        and not keywords
        and not any(map(module_has_hooks, chain(*(each.modules() for each in modules))))
    )


def losses_and_weights(criterion: Criterion, output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of cross entropy, and the weights by whose sum its mean divides.

    :func:`counts_targets` is true for ``criterion``. It is not compiled here.
    """
    source = _find_source(criterion)
    function: Any = source.function
    if isinstance(function, nn.Module):
        function = copy.copy(function)
        function.reduction = "none"
    else:
        options = {**source.keywords, "size_average": None, "reduce": None, "reduction": "none"}
        function = partial(function, **options)
    counted = target != source.option("ignore_index", -100)
    weight = source.option("weight")
    weights: Any = counted if weight is None else weight[target.where(counted, 0)] * counted
    return function(output, target), weights


def check_mean(criterion: Criterion) -> None:
    """Raise ValueError if the mean of ``criterion`` may divide by another number than rows.

    :func:`counts_targets` is false for ``criterion``. Its attributes, submodules, arguments of
    partials, default arguments, and variables of closures are searched.
    """
    for each in _search(criterion):
        found = _dependence(each)
        if found is not None:
            source = _find_source(criterion).function
            name = getattr(source, "__name__", type(source).__name__)
            raise ValueError(
                f"the mean of {name} may not be one over rows: it uses {found}. Pass "
                "mean_over='rows', or as mean_over a function of output and target that returns "
                "the number by which the criterion divides; or let the criterion return sums, "
                "with reduction='sum'"
            )


def _dependence(value: Any) -> str | None:
    """Return the part of ``value`` on which a mean may depend, if there is one."""
    owner = getattr(value, "__name__", type(value).__name__)
    if isinstance(value, _TRACED):
        return f"{owner}, which is scripted or traced"
    options = dict(_options(value))
    if options.get("ignore_index", getattr(type(value), "ignore_index", None)) is not None:
        return f"the ignore_index of {owner}"
    weight = options.get("weight")
    if isinstance(weight, Tensor) and weight.numel() > 1 and not _is_of_torch(value):
        return f"the weight of {owner}"
    if options.get("reduction") == "sum" or options.get("size_average") is False:
        return f"{owner} with the reduction 'sum'"
    return None


def _is_of_torch(value: Any) -> bool:
    """Return whether ``value`` is a layer or a function of ``torch.nn``, or a partial of one."""
    function = value.func if isinstance(value, partial) else value
    # The attribute of a built-in function is None.
    return str(getattr(function, "__module__", None)).startswith("torch.nn")


def _search(root: Any) -> Iterator[Any]:
    """Yield ``root`` and the objects to which it refers directly or indirectly."""
    seen: dict[int, Any] = {}
    pending = [root]
    while pending and len(seen) < _MOST_OBJECTS:
        value = pending.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            yield value
            pending += [each for each in _members(value) if not isinstance(each, _NOT_SEARCHED)]


def _members(value: Any) -> Iterator[Any]:
    """Yield the objects to which ``value`` refers."""
    if isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
        if isinstance(value.__self__, type):
            yield from _members_of_class(value.__self__)
    elif not (isinstance(value, nn.Module) and _is_of_torch(value)):
        yield from (each for _, each in _options(value))
        yield from _members_of_class(type(value))
    if isinstance(value, nn.Module):
        yield from value._modules.values()
    elif isinstance(value, partial):
        yield from (value.func, *value.args)
    elif isinstance(value, FunctionType):
        yield from _global_members(value.__code__, value.__globals__)


def _global_members(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the modules, methods and partials in the global variables that ``code`` reads."""
    kinds = (nn.Module, MethodType, partial)
    found = [name for name in code.co_names if isinstance(names.get(name), kinds)]
    if found:  # Attributes may have the same names.
        read = {each.argval for each in get_instructions(code) if each.opname == "LOAD_GLOBAL"}
        yield from (names[name] for name in found if name in read)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # A generator or an inner function.
            yield from _global_members(constant, names)


def _members_of_class(kind: type) -> Iterator[Any]:
    """Yield the losses, and the functions that compute a loss, of a class of criteria."""
    for base in kind.__mro__:
        if not _is_of_torch(base):
            members = vars(base)
            yield from (each for each in members.values() if isinstance(each, nn.Module | partial))
            yield from (members.get(name) for name in ("forward", "__call__"))


def _options(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the named values of a function, partial, dictionary or object with attributes."""
    if isinstance(value, FunctionType):
        code, defaults = value.__code__, value.__defaults__ or ()
        first = code.co_argcount - len(defaults)
        yield from zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)
        yield from (value.__kwdefaults__ or {}).items()
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # The variable has no value yet.
                continue
    elif isinstance(value, partial):
        yield from value.keywords.items()
    elif isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, nn.Module):
        yield from value._buffers.items()
        names = vars(value).keys() - _OF_EVERY_MODULE
        yield from ((name, vars(value)[name]) for name in names)
        return
    yield from getattr(value, "__dict__", {}).items()
    yield from slots_of(value)
