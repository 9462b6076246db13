"""The module ``functions`` by the name that it has in torch.nn.parallel."""

from ._compat import _get_stream
from .functions import Broadcast, Gather, ReduceAddCoalesced, Scatter

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter", "_get_stream"]
