"""``python -m impl_tests.models --write``: train all models and write their results."""

import os
import sys

# Replicas run in new threads. torch.set_num_threads would not affect matrix products there.
os.environ["OMP_NUM_THREADS"] = "1"

from impl_tests.consumers.programs_page import write_results
from impl_tests.helpers.aligned_copies import align_copies
from spec_tests import cuda_stand_ins, simulator
from spec_tests.cuda_stand_ins import stub_libraries


def main(option: str) -> None:
    """Train all models and write the results."""
    if option != "--write":
        raise SystemExit(__doc__)
    stub_libraries.load_stubs()
    simulator.enable(device_count=2)
    cuda_stand_ins.enable()
    align_copies()
    from impl_tests.models.catalogue import MODELS
    from impl_tests.models.results import RESULTS, run_all, summarize

    found = {name: summarize(model, run_all(model)) for name, model in MODELS.items()}
    write_results(RESULTS, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
