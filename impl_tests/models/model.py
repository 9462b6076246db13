"""A model to train: how it is made, fed and judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

__all__ = ["HOOKS", "NO_PARAMETERS", "ROWS", "Model", "own_loss"]

#: Of a batch: two for each device.
ROWS = 4
#: What is wrong with several models, on torch.nn.parallel or on both.
HOOKS = "replicas share the hooks by which transformers collects outputs, and collect each other's"
NO_PARAMETERS = "asks a replica for its first parameter, and replicas have none"


def own_loss(output: Any) -> Tensor:
    """Average the losses that the replicas have computed, or take the plain module's own."""
    loss: Tensor = output["loss"].mean()
    return loss


@dataclass(frozen=True)
class Model:
    """One architecture.

    Args:
        name: What tests and the published table call it.
        package: Where it is from, as the package index names it.
        chosen_for: What it has that others have not.
        build: Makes it, from torch's global random state.
        inputs: Draws a batch of so many rows: keyword arguments, or positional ones.
        loss: Takes the loss from the outputs.
        apart: Beginnings of the names of outputs that are another thing where the batch is in
            parts, and why.
        reference: What is wrong with it on torch.nn.parallel, if anything is.
        ours: What is wrong with it on impl, if anything is.
    """

    name: str
    package: str
    chosen_for: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Mapping[str, Any] | tuple[Any, ...]]
    loss: Callable[[Any], Tensor] = own_loss
    apart: tuple[str, ...] = ()
    reference: str = ""
    ours: str = ""

    @property
    def races(self) -> bool:
        """Whether the reference is wrong only where its replicas run at the same time."""
        return self.reference == HOOKS
