"""The overhead of DataParallel for a compiled module, compared with the plain module.

Run this file alone, because Python code in the same process runs at least a quarter slower after a
compilation. torch.nn.parallel cannot run compiled modules, so `reference` runs the uncompiled
module.
"""

import gc

import pytest

from .bench_data_parallel import BLOCKS, WITH_MODULE, build_module_and_input, run_step


@WITH_MODULE
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def bench_forward_backward_compiled(time_call, benchmark, library, topology):
    benchmark.group = f"DataParallel forward+backward compiled blocks={BLOCKS}"
    module, x = build_module_and_input(library, topology)
    if library == "impl":
        module.module.compile(backend=eager_backend)
        run_step(module, x)  # The first step compiles the module.
        gc.collect()

    time_call(run_step, module, x)

    assert all(p.grad is not None for p in module.parameters())


def eager_backend(graph, inputs):
    """Return the graph as torch.compile captured it: a back end that optimises nothing."""
    return graph.forward
