"""Alias of the module ``functions``, which torch.nn.parallel calls ``_functions``."""

import torch
from torch.autograd.function import Function as Function  # nncore imports it from this module.

from .functions import Broadcast, Gather, ReduceAddCoalesced, Scatter, _get_stream

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter", "_get_stream"]

#: None, as in torch.nn.parallel before its first copy. impl does not read it. torch_npu assigns
#: its streams to it.
_streams: list[torch.Stream | None] | None = None
