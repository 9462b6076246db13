"""What DataParallel of a compiled module costs above the plain module's own time.

A run of its own: after compiling much of Python is slower, by a quarter and more.
torch.nn.parallel cannot run compiled modules: it has the plain one.
"""

import gc

import pytest

from .bench_data_parallel import BLOCKS, WITH_FLOOR, step, wrapped


@WITH_FLOOR
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def bench_forward_backward_compiled(timed, benchmark, library, topology):
    benchmark.group = f"DataParallel forward+backward compiled blocks={BLOCKS}"
    module, x = wrapped(library, topology)
    if library == "impl":
        module.module.compile(backend=as_captured)
        step(module, x)  # Compiles.
        gc.collect()

    timed(step, module, x)

    assert all(p.grad is not None for p in module.parameters())


def as_captured(graph, inputs):
    return graph.forward
