"""The time of DataParallel for a compiled module.

Run this file alone, because Python code in the same process runs at least a quarter slower after a
compilation. torch.nn.parallel cannot run compiled modules, so `reference` runs the uncompiled
module.
"""

import copy
import gc
from functools import partial

import pytest

from .bench_data_parallel import BLOCKS, build_modules_and_input, run_step

pytestmark = pytest.mark.usefixtures("impl_only")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def bench_forward_backward_compiled(time_in_turn, targets, benchmark, topology):
    benchmark.group = f"DataParallel forward+backward compiled blocks={BLOCKS}"
    modules, x = build_modules_and_input(targets, topology)
    modules["impl"].module = copy.deepcopy(modules["reference"].module)
    modules["impl"].module.compile(backend=eager_backend)
    run_step(modules["impl"], x)  # The first step compiles the module.
    gc.collect()

    time_in_turn({library: partial(run_step, module, x) for library, module in modules.items()})

    for module in modules.values():
        assert all(p.grad is not None for p in module.parameters())


def eager_backend(graph, inputs):
    """Return the graph as torch.compile captured it: a back end that optimises nothing."""
    return graph.forward
