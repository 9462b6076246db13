"""Print, as JSON, where each library's DataParallel places replicas, inputs and outputs."""

import json
import sys
from types import ModuleType

import torch
from torch import Tensor, nn

import impl


class Identity(nn.Module):
    """A module with a parameter whose forward runs no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.seen: list[str] = []

    def forward(self, rows: Tensor) -> Tensor:
        """Return ``rows``, and record the devices."""
        self.seen.append(f"{self.weight.device} {rows.device}")
        return rows


def placement(library: ModuleType, device_ids: list[int] | None) -> object:
    """Return the attributes of a wrapper, the devices of its replicas, and the output."""
    module = Identity().to(torch.device("cuda", device_ids[0] if device_ids else 0))
    wrapper = library.DataParallel(module, device_ids)
    rows = torch.arange(16.0).reshape(8, 2)
    output = wrapper(rows)
    return [
        wrapper.device_ids,
        wrapper.output_device,
        str(wrapper.src_device_obj),
        sorted(module.seen),
        str(output.device),
        output.cpu().equal(rows),
    ]


def main() -> None:
    """Print the results for torch.nn and impl."""
    last = torch.cuda.device_count() - 1
    results = [
        [placement(library, ids) for ids in (None, [last], [last, 0])] for library in (nn, impl)
    ]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
