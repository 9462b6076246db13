"""Makes the names of CUDA mean the simulated devices, for programs that say "cuda".

``enable(as_cuda=True)`` replaces functions of PyTorch for the rest of the process. The device
``cuda:1`` of a program is ``sim:1``. Outside ``spec_tests`` its ``type`` is ``"cuda"``, but its
text stays ``"sim:1"``. Functions of ``torch.cuda`` without a counterpart here stay as they are.
"""

import contextlib
import copyreg
import ctypes
import functools
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _device

from . import device_module

_Device = torch.device
#: The functions, besides constructors of tensors, with a device or its type among their arguments.
_PLACES: dict[Any, str] = {
    torch: "load set_default_device get_autocast_dtype set_autocast_dtype",
    torch.Tensor: "to new_tensor new_empty new_full new_ones new_zeros new_empty_strided",
    torch.nn.Module: "to to_empty",
    PackedSequence: "to",
    torch.amp.autocast_mode.autocast: "__init__",
    torch.amp.GradScaler: "__init__",
    torch.random: "fork_rng",
    torch.accelerator: "set_device_index current_stream synchronize get_memory_info "
    "memory_allocated max_memory_allocated reset_peak_memory_stats",
    device_module: "set_device get_device_name get_device_properties current_stream synchronize "
    "memory_allocated max_memory_allocated reset_peak_memory_stats default_generator "
    "get_rng_state set_rng_state",
    device_module.device: "__init__",
}
#: The classes in C whose constructors take a device.
_CLASSES = ("device", "Generator", "Stream", "Event")


def use_cuda_names() -> None:
    """Replace the functions. A second call does nothing."""
    if torch.device is not _Device:
        return
    if torch.cuda.is_available():
        raise RuntimeError("as_cuda=True would hide the CUDA devices of this machine")
    for place, names in _PLACES.items():
        for name in names.split():
            setattr(place, name, _translated(getattr(place, name)))
    constructors = {each.__name__: each for each in _device._device_constructors() if each}
    for name, each in constructors.items():
        if getattr(torch, name, None) is each:
            setattr(torch, name, _translated(each))
    for name in _CLASSES:
        setattr(torch, name, _stand_in(getattr(torch, name)))
    _replace_device_type()
    copyreg.pickle(_Device, _reduce_device)
    _replace_methods()
    _replace_autocast()
    _replace_torch_cuda()


def _as_sim(value: Any) -> Any:
    """Return ``value``, or the simulated device if it is a device of CUDA or its name."""
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return f"sim{value[4:]}"
    if isinstance(value, _Device) and value.type == "cuda":
        return _Device("sim", value.index)
    if isinstance(value, dict):  # torch.load(map_location={"cuda:0": "cuda:1"})
        return {key: _as_sim(each) for key, each in value.items()}
    return value


def _translated(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_as_sim, args), **{key: _as_sim(kwargs[key]) for key in kwargs})

    builtins: Any = torch.jit._builtins
    if name := builtins._find_builtin(function):  # TorchScript knows functions in C by identity.
        builtins._register_builtin(call, name)
    return call


def _stand_in(real: type) -> type:
    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    translated = _translated(real)

    def new(_: type, *args: Any, **kwargs: Any) -> Any:
        return translated(*args, **kwargs)

    return Meta(real.__name__, (), {"__new__": new, "__module__": "torch"})


def _replace_device_type() -> None:
    attributes = gc.get_referents(_Device.__dict__)[0]  # A class in C has no other writable dict.
    get = attributes["type"].__get__

    def device_type(device: torch.device) -> str:
        kind: str = get(device)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return "cuda" if kind == "sim" and caller.partition(".")[0] != "spec_tests" else kind

    attributes["type"] = property(device_type)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(_Device))


def _reduce_device(device: torch.device) -> tuple[Any, ...]:
    return torch.device, (str(device),)


def _replace_methods() -> None:
    for holder in (torch.Tensor, torch.nn.Module, PackedSequence):
        setattr(holder, "cuda", _with_ordinal(getattr(holder, "sim")))  # noqa: B009, B010 - untyped
    torch.Tensor.is_cuda = property(lambda self: self.device.type == "sim")  # type: ignore[assignment]
    PackedSequence.is_cuda = property(lambda self: self.data.is_cuda)  # type: ignore[assignment]


def _with_ordinal(method: Callable[..., Any]) -> Callable[..., Any]:
    # The methods refuse a device whose type is "cuda" for them, but not its ordinal.
    @functools.wraps(method)
    def call(self: Any, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(device, str | _Device) and str(_as_sim(device)).startswith("sim"):
            device = _Device(_as_sim(device)).index
        return method(self, device, *args, **kwargs)

    return call


def _replace_autocast() -> None:
    is_enabled, set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled
    replace = functools.partial(setattr, torch)
    replace("is_autocast_enabled", lambda kind="cuda": is_enabled(_as_sim(kind)))
    replace("set_autocast_enabled", lambda *args: set_enabled(*map(_as_sim, ("sim", *args)[-2:])))
    replace("get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("sim"))
    replace("set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype("sim", dtype))


def _replace_torch_cuda() -> None:
    torch.backends.cudnn.enabled = False  # cuDNN warns if it is asked about these devices
    names = {name for name in vars(device_module) if not name.startswith("__")} - {"torch"}
    found = {name: getattr(device_module, name) for name in names}
    generators = map(device_module.default_generator, range(device_module.device_count()))
    found |= {
        "Stream": torch.Stream,
        "Event": torch.Event,
        "stream": lambda stream: stream or contextlib.nullcontext(),
        "default_generators": list(generators),
        "mem_get_info": torch.accelerator.get_memory_info,
        "get_device_capability": lambda device=None: (8, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "_get_device_index": _translated(torch._utils._get_device_index),
        "_sleep": lambda cycles: None,
    }
    for module in (torch.cuda, torch.cuda._utils):
        for name in found.keys() & dir(module):
            setattr(module, name, found[name])
