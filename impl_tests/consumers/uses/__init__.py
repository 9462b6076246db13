"""Programs that compute with a wrapper what the module computes alone, one file for each package.

Each file has ``USES``: the description of a use -> a function that gets a :class:`Variant`, which
wraps the module, and returns the computed tensors and numbers. The module has random weights from
a fixed seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import impl

__all__ = ["VARIANTS", "Use", "Variant"]


@dataclass(frozen=True)
class Variant:
    """A way to run a module.

    Args:
        device: The device of the module.
        data_parallel: The class of the wrapper; None for the module alone.
        device_ids: The devices of the wrapper.
    """

    device: str
    data_parallel: type[Any] | None = None
    device_ids: tuple[str, ...] = ()

    def wrap(self, module: nn.Module) -> Any:
        """Return ``module``, moved to the device and wrapped."""
        module.to(self.device)
        if self.data_parallel is None:
            return module
        return self.data_parallel(module, list(self.device_ids))

    @property
    def library(self) -> Any:
        """The module with ``parallel_apply`` and ``gather`` of the wrapper's library."""
        return torch.nn.parallel if self.data_parallel is nn.DataParallel else impl


#: For each name in the results: the variant.
VARIANTS: Mapping[str, Variant] = {
    "cpu": Variant("cpu", impl.DataParallel, ("cpu", "cpu")),
    "sim": Variant("sim:0", impl.DataParallel, ("sim:0", "sim:1")),
    "reference": Variant("sim:0", nn.DataParallel, ("sim:0", "sim:1")),
}
#: A use returns tensors and numbers, in containers.
Use = Callable[[Variant], Any]
