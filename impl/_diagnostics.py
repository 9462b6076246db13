"""Warnings and notes that explain frequent errors of replicas.

Most of them are about a function or an object that refers to a module and that replicas do not
rebind. A replica that calls such a function runs on this module, not on the replica of the module.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from ._references import REBOUND, members
from ._warnings import warn_caller

#: The beginning of notes about the parameters of replicas.
_COPIES = "The parameters of a replica are copies with a history."
#: The remedy that warnings and notes name.
_REMEDY = (
    "Replicas rebind methods, partials, lists and dictionaries, not closures and other objects: "
    "make the function a method of the module, or bind it with types.MethodType(function, module);"
    " replace the object by a list, a dictionary or an attribute of the module"
)
#: The classes of errors that may get a note.
EXPLAINED = (ValueError, RuntimeError, TypeError, AttributeError)
#: The number of steps from an attribute to a module, at most.
_DEPTH = 4
#: The number of objects that are searched for a module, at most.
_MOST_OBJECTS = 10_000
#: The functions and objects that were checked, by `id` and class, so that each is warned of once.
#: The value is a weak reference, which removes the entry when the object is freed. An object that
#: cannot have one is noted until the root of its tree is freed.
_checked: dict[tuple[int, type], Any] = {}


def explain(
    error: Exception,
    index: int,
    module: object,
    device: torch.device,
    arguments: Any,
    tensor: Tensor | None,
) -> None:
    """Add a note to an error of a replica, if its cause is known."""
    with suppress(Exception):  # A class of exceptions may refuse notes, or a text.
        if type(error) not in EXPLAINED:
            return  # `__str__` of a subclass may end the program.
        text, note = str(error), None
        if "more than 1 value per channel" in text and tensor is not None:
            note = (
                f"Replica {index} got a tensor of shape {tuple(tensor.shape)}. In training batch "
                "norm needs more than one value per channel in each replica: drop the last batch, "
                "or use a batch size that gives each device several rows."
            )
        elif "(torch.nn.Parameter or None expected)" in text:
            note = (
                f"{_COPIES} Only an nn.Parameter can replace one: pass nn.Parameter values to "
                "load_state_dict(assign=True), and tie parameters in __init__."
            )
        elif "requires_grad flags of leaf variables" in text:
            note = f"{_COPIES} Freeze the parameters of the module outside of the forward."
        elif "devices[0]" in text or "(device_ids[0])" in text:
            note = (
                f"Replica {index} and its tensors are on {device}. In its forward, wrappers and "
                "replicate() must list this device first. Wrap a module only once."
            )
        elif "is not an nn.Parameter" in text:
            note = f"{_COPIES} Read them as attributes: get_parameter refuses plain tensors."
        elif "offsets[0] has to be 0" in text or "offsets[-1] can not be greater" in text:
            note = (
                "The offsets of EmbeddingBag are positions in the whole batch, and only the first "
                "chunk begins at 0: pass a matrix with one bag in each row, padded with "
                "padding_idx, and no offsets."
            )
        elif "same device" in text:
            note = _device_note(module, device, arguments)
        if note is not None:
            error.add_note(note)


# References to modules in closures and in objects that replicas do not rebind.


def warn_of_closures(values: Iterable[Any], modules: Sequence[nn.Module]) -> None:
    """Warn once of each function or object among ``values`` that refers to one of ``modules``."""
    unchecked = [
        each
        for each in values
        # A `qconfig` refers to its module, and is not called in a forward.
        if not type(each).__module__.startswith("torch.ao.quantization")
        and not _mark_checked(each, modules[0])
    ]
    tree = set(map(id, modules if unchecked else ()))
    for each in unchecked:
        original = _find(each, lambda value: id(value) in tree)
        if original is not None:
            is_function = isinstance(each, FunctionType)
            # The code has the function's own name, which a decorator may have replaced.
            name = each.__code__.co_qualname if is_function else type(each).__qualname__
            subject = f"The function {name}" if is_function else f"An object of class {name}"
            warn_caller(
                f"{subject} is held by an attribute or a hook of a replicated "
                f"module and refers to {_describe(original)}. All replicas use the "
                f"original {_describe(original)} through it, not their copies. {_REMEDY}."
            )


def _mark_checked(value: Any, root: nn.Module) -> bool:
    """Note that ``value`` is checked; return whether it was checked before."""
    key = id(value), type(value)
    was_checked = key in _checked
    try:
        _checked[key] = ref(value, lambda _: _checked.pop(key, None))
    except TypeError:  # An object with slots, or a named tuple, has no weak references.
        _checked[key] = ref(root, lambda _: _checked.pop(key, None))
    return was_checked


def _device_note(replica: object, device: torch.device, arguments: object) -> str | None:
    """Return why tensors of ``replica`` are on different devices, if a cause is found."""
    if not isinstance(replica, nn.Module):
        return None
    tree = set(map(id, replica.modules()))

    def is_elsewhere(value: Any) -> bool:
        if not isinstance(value, nn.Module) or id(value) in tree:
            return False
        return any(each.device != device for each in chain(value.parameters(), value.buffers()))

    def is_tensor_elsewhere(value: Any) -> bool:
        return isinstance(value, Tensor) and value.device != device and value.dim() > 0

    found = _find(arguments, is_elsewhere)
    if found is not None:
        return (
            f"An argument holds {_describe(found)}, which is not copied to {device}: call it "
            "outside of the forward, or make it a submodule."
        )
    for path, module in replica.named_modules():
        for name, value in _attributes(module):
            owner = f"module {path!r}" if path else "the module"
            found = _find(value, is_elsewhere)
            if found is not None:
                return (
                    f"{name} of {owner} holds {_describe(found)}, which is not the copy on "
                    f"{device}. {_REMEDY}."
                )
            found = _find(value, is_tensor_elsewhere)
            if found is not None:
                return (
                    f"{name} of {owner} holds a tensor on {found.device}, and the replica is on "
                    f"{device}. Replicas copy parameters and buffers only: register each tensor "
                    "with register_buffer, and make other objects of it in the forward."
                )
    return None


def _find(value: Any, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the first wanted object to which ``value`` refers in a few steps, or None."""
    seen: set[int] = set()
    level = [value]
    for _ in range(_DEPTH + 1):
        if len(seen) + len(level) > _MOST_OBJECTS:
            return None
        for each in level:
            if is_wanted(each):
                return each
        seen.update(map(id, level))
        level = [part for each in level for part in _parts(each) if id(part) not in seen]
    return None


def _parts(value: Any) -> Iterable[Any]:
    """Return the objects to which ``value`` refers; none for a module, a class or a tensor."""
    if isinstance(value, FunctionType):
        return (*_variables(value), *(value.__defaults__ or ()), *vars(value).values())
    if isinstance(value, MethodType):
        return (value.__self__, value.__func__)
    if type(value) in REBOUND:
        return members(value)
    if isinstance(value, (nn.Module, Tensor, type, ModuleType)):
        return ()
    # The attributes, slots or members of an object of any class, without calls of its methods.
    return gc.get_referents(value)


def _variables(function: FunctionType) -> Iterator[Any]:
    """Yield the variables of the closure, and the global variables that may call a module."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # The variable has no value yet.
            continue
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, (nn.Module, MethodType, partial)):
            yield value


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes and the hooks of ``module``, each with its name in an error."""
    for name, value in vars(module).items():
        if name in ("_modules", "_parameters", "_buffers", "_former_parameters"):
            continue
        kind = "A hook" if name.endswith("hooks") else "Attribute"
        yield f"{kind} {name!r}", value


def _describe(module: nn.Module) -> str:
    return type(module).__name__
