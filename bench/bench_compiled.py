"""The cost of DataParallel of a compiled module above the plain module.

Run this file alone: compiling slows Python down by a quarter or more afterwards.
torch.nn.parallel cannot run compiled modules, so the reference runs the uncompiled module.
"""

import gc

import pytest

from .bench_data_parallel import BLOCKS, WITH_MODULE, build, step


@WITH_MODULE
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def bench_forward_backward_compiled(timed, benchmark, library, topology):
    benchmark.group = f"DataParallel forward+backward compiled blocks={BLOCKS}"
    module, x = build(library, topology)
    if library == "impl":
        module.module.compile(backend=uncompiled_graph)
        step(module, x)  # The first step compiles.
        gc.collect()

    timed(step, module, x)

    assert all(p.grad is not None for p in module.parameters())


def uncompiled_graph(graph, inputs):
    return graph.forward
