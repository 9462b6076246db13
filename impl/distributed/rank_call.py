"""The work of one rank in a call: the module runs on this rank's chunk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._devices import call_on_device
from .._errors import CapturedError, capture
from .inputs import Fingerprint, ShardedInputs, check_same_inputs
from .process_group import Communicator
from .rank_result import Idle, RankResult, Returned, make_failed, raise_first_error
from .serialization import pack


@dataclass
class RankCall:
    """This rank's work in one call, and its result."""

    module: nn.Module
    comm: Communicator
    device: torch.device
    dim: int
    chunk_sizes: Sequence[float] | None
    graph_anchor: Tensor | None = None  # As in `ShardedInputs`.
    output: Any = None
    #: The tensors in the output, which are sent to other ranks; empty with one rank.
    tensors: list[Tensor] = field(default_factory=list)
    _result: RankResult = field(default_factory=Idle)
    _fingerprint: Fingerprint | None = None
    _error: BaseException | None = None

    def run(self, inputs: Any, kwargs: Mapping[str, Any], *, check_inputs: bool) -> None:
        """Call the module on this rank's chunk. :meth:`exchange_results` raises errors later."""
        outcome = capture(self._run, inputs, kwargs, check_inputs)
        if isinstance(outcome, CapturedError):
            self._error = outcome.pop()
            location = f"in rank {self.comm.rank} on device {self.device}"
            self._result = make_failed(self._error, location)

    def exchange_results(self) -> list[RankResult]:
        """Send this rank's result to all ranks, and return the results of all ranks.

        Raise ValueError if the ranks have different inputs, or the exception that a rank raised.
        """
        gathered = self.comm.all_gather_object((self._fingerprint, self._result))
        error, self._error = self._error, None
        check_same_inputs([fingerprint for fingerprint, _ in gathered])
        results = [result for _, result in gathered]
        raise_first_error(results, error)
        return results

    def _run(self, inputs: Any, kwargs: Mapping[str, Any], check_inputs: bool) -> None:
        sharded = ShardedInputs(self.comm, inputs, kwargs, self.device, self.dim, self.chunk_sizes)
        self.graph_anchor = sharded.graph_anchor
        if check_inputs:
            self._fingerprint = sharded.fingerprint()
        if self.comm.rank >= sharded.num_active_ranks:
            return
        local_args, local_kwargs = sharded.local_inputs()
        self.output = call_on_device(self.device, self.module, *local_args, **local_kwargs)
        if self.comm.size > 1:
            structure, metas, self.tensors = pack(self.output)
            self._result = Returned(structure, metas)
