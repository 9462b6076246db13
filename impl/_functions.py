"""Alias of the module ``functions``, which torch.nn.parallel calls ``_functions``."""

from torch.autograd.function import Function as Function

from ._legacy_names import _get_stream
from ._legacy_names import _streams as _streams
from .functions import Broadcast, Gather, ReduceAddCoalesced, Scatter

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter", "_get_stream"]
