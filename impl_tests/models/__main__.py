"""``python -m impl_tests.models --write``: train all models and publish what they show."""

import sys

import torch

from impl_tests import hollow_cuda
from impl_tests.aligned_copies import align_copies
from spec_tests import reference, simulator


def main(option: str) -> None:
    """Publish the results."""
    if option != "--write":
        raise SystemExit(__doc__)
    torch.set_num_threads(1)
    hollow_cuda.load()
    simulator.enable(device_count=2)
    reference.enable()
    align_copies()
    from impl_tests.models.catalogue import MODELS
    from impl_tests.models.results import write

    write(MODELS)


if __name__ == "__main__":
    main(*sys.argv[1:])
