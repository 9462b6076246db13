"""Notes that explain frequent errors of replicas."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ._held_modules import device_note

#: The beginning of notes about the parameters of replicas.
_COPIES = "The parameters of a replica are copies with a history."


def explain(
    error: Exception,
    index: int,
    module: object,
    device: torch.device,
    arguments: Any,
    tensor: Tensor | None,
) -> None:
    """Add a note to an error of the replica ``index``, if its cause is known.

    ``tensor`` is the first one in ``arguments``.
    """
    with suppress(Exception):  # A class of exceptions may refuse notes, or a text.
        if type(error) not in (ValueError, RuntimeError, TypeError):
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
        elif "same device" in text:
            note = device_note(module, device, arguments)
        if note is not None:
            error.add_note(note)
