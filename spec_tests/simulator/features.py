"""Features of real accelerators that some back ends lack, switched off for a whole process."""

import os
from collections.abc import Collection, Iterable

from . import device_module, native

_AUTOCAST = "autocast"
#: For each name: the description.
FEATURES = {
    "new-streams": "streams besides the one that each device has",
    "events": "events that the host can query, wait for and time; streams can wait without it",
    "record-stream": "Tensor.record_stream",
    "half-precision": "float16, bfloat16 and smaller floating types",
    "double-precision": "float64",
    "complex-numbers": "complex dtypes",
    "sparse": "tensors with a sparse layout",
    "pinned-memory": "Tensor.pin_memory",
    _AUTOCAST: "torch.autocast",
    "kept-parameters": "module.to() keeps the Parameter objects; without it, it creates new ones",
}
#: The name of all features in `switch_off`.
ALL = "all"
#: Environment variable: the missing features, separated by commas. Child processes inherit it.
_VARIABLE = "SIM_MISSING_FEATURES"


def missing() -> tuple[str, ...]:
    """Return the features that are switched off in this process, or will be by ``enable``."""
    names = os.environ.get(_VARIABLE, "")
    return tuple(filter(None, names.split(",")))


def switch_off(names: Iterable[str]) -> None:
    """Switch off the features ``names``, or `ALL`, in this process and its child processes.

    All other features are switched on. Call this function before the first use of a device.

    Raises:
        ValueError: A name is not one of ``FEATURES``, and not `ALL`.
    """
    names = tuple(dict.fromkeys(names))
    unknown = [name for name in names if name not in (*FEATURES, ALL)]
    if unknown:
        raise ValueError(f"sim has no feature {unknown[0]!r}; it has {', '.join(FEATURES)}")
    os.environ[_VARIABLE] = ",".join(FEATURES if ALL in names else names)


def remove(names: Collection[str]) -> None:
    """Remove the features ``names`` from the loaded extension and from ``torch.sim``."""
    native.extension().set_missing_features([name for name in names if name != _AUTOCAST])
    if _AUTOCAST in names:
        # `torch.autocast` raises an error if the device module does not have this function.
        del device_module.get_amp_supported_dtype
