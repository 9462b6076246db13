"""One rank's part of one call."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._device import use_device
from .._threads import Failure, attempt
from .inputs import Arguments, Fingerprint, check_alike
from .process_group import Ranks
from .rank_result import Idle, Report, Returned, failed, raise_first
from .serialization import label, pack

__all__ = ["Turn"]


class Turn:
    """What a rank does in one call, and what comes of it.

    Args:
        module: What to compute.
        ranks: The ranks.
        device: This rank's device.
        dim: The dimension to split.
        weights: The ranks' shares of the rows.

    Attributes:
        thread: What leads gradients to the arguments.
        output: What the module has returned.
        tensors: The tensors in it, if it was to be sent.
    """

    def __init__(
        self,
        module: nn.Module,
        ranks: Ranks,
        device: torch.device,
        dim: int,
        weights: Sequence[float] | None,
    ) -> None:
        self._module = module
        self._ranks = ranks
        self._home = device
        self._dim = dim
        self._weights = weights
        self._report: Report = Idle()
        self._fingerprint: Fingerprint | None = None
        self._error: BaseException | None = None
        self.thread: Tensor | None = None
        self.output: Any = None
        self.tensors: list[Tensor] = []

    def run(self, inputs: Any, kwargs: Mapping[str, Any], *, is_checked: bool) -> None:
        """Compute the rank's part; what is raised is kept for `compare`."""
        outcome = attempt(self._run, inputs, kwargs, is_checked)
        if isinstance(outcome, Failure):
            self._error = outcome.take()
            where = f"in rank {self._ranks.rank} on device {self._home}"
            self._report = failed(self._error, where)

    def compare(self) -> list[Report]:
        """Give the reports of all ranks.

        Raises:
            ValueError: A rank has other arguments.
            Exception: A rank has raised one.
        """
        told = self._ranks.exchange((self._fingerprint, self._report))
        error, self._error = self._error, None
        check_alike([fingerprint for fingerprint, _ in told])
        reports = [report for _, report in told]
        raise_first(reports, error)
        return reports

    def _run(self, inputs: Any, kwargs: Mapping[str, Any], is_checked: bool) -> None:
        arguments = Arguments(self._ranks, inputs, kwargs, self._home, self._dim, self._weights)
        self.thread = arguments.thread
        if is_checked:
            self._fingerprint = arguments.fingerprint()
        if self._ranks.rank >= arguments.active:
            return
        args, own_kwargs = arguments.part()
        with use_device(self._home):
            self.output = self._module(*args, **own_kwargs)
        if self._ranks.size > 1:
            skeleton, self.tensors = pack(self.output)
            self._report = Returned(skeleton, [label(tensor) for tensor in self.tensors])
