"""impl.distributed in a process group of one rank: errors, collectives, waits for all-reduces."""

from spec_tests.harness.environment.scripts import run_program

BEGIN = """
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from torch.profiler import ProfilerActivity, profile
from impl.distributed import DataParallel
from impl.distributed.process_group import get_communicator

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
comm = get_communicator(None, torch.device("cpu"))
"""
#: A program that prints the errors for wrong arguments.
PRINTS_ERRORS = """
def report(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", getattr(error, "__notes__", []))

report(DataParallel, len)
report(DataParallel, nn.Linear(1, 1), dim=[1.0])
report(DataParallel, nn.Linear(1, 1), source=True)
report(DataParallel, nn.Linear(1, 1), chunk_sizes=1)
net = DataParallel(nn.Linear(1, 1))
report(net.mean, [1.0])
report(net.mean, torch.ones(0))
report(net.part, torch.tensor([]).to_sparse_coo())
"""
#: A program that registers a hook before the wrapper, before a call, and before a backward.
REGISTERS_HOOKS = """
for place in range(3):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    value, stepped = net, []
    call, backward = lambda wrapper: wrapper(torch.ones(2, 2)), lambda y: y.sum().backward()
    try:
        for step in (DataParallel, call, backward):
            if place == 0:
                net[1].bias.register_post_accumulate_grad_hook(stepped.append)
            place, value = place - 1, step(value)
    except NotImplementedError as error:
        print(str(error).partition(",")[0], stepped, net[1].weight.grad)
"""
#: A program that prints the collectives of one backward of a module with buffers.
PRINTS_COLLECTIVES = """
net = DataParallel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
out = net(torch.ones(4, 2))
with profile(activities=[ProfilerActivity.CPU]) as recorded:
    out.sum().backward()
print(sorted({each.name for each in recorded.events() if each.name.startswith("c10d::")}))
"""
#: A program whose main thread gets the sum and exits while another thread runs ``set_result``.
EXITS_EARLY = """
def set_result(self, result, original=Future.set_result):
    original(self, result)
    for _ in range(200):
        time.sleep(0.005)
    print("thread finished", flush=True)

Future.set_result = set_result
print(comm.all_reduce_async(torch.ones(1)).wait().item(), flush=True)
"""
#: A program whose back end raises an OSError. PyTorch's back ends raise only RuntimeError.
RAISES_OS_ERROR = """
class Work:
    def wait(self, timeout):
        raise OSError("connection lost")

dist.all_reduce = lambda *args, **kwargs: Work()
try:
    comm.all_reduce_async(torch.ones(1)).wait()
except RuntimeError as error:
    print(error)
"""


def run_in_group(program, folder):
    """Run the program in a new process; return the printed lines."""
    completed = run_program(f"{BEGIN}{program}\ndist.destroy_process_group()", f"{folder}/store")
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()


def test_errors_name_the_argument(tmp_path):
    lines = run_in_group(PRINTS_ERRORS, tmp_path)
    assert lines[:6] == [
        "TypeError: module must be a Module, not builtin_function_or_method []",
        "TypeError: dim must be an int, not list ['Argument: dim']",
        "TypeError: source must be an int, not bool ['Argument: source']",
        "TypeError: object of type 'int' has no len() ['Argument: chunk_sizes']",
        "TypeError: losses must be a tensor, not list []",
        "ValueError: all ranks have passed losses without elements to mean []",
    ]
    assert lines[-1].endswith("['Argument: value']")


def test_hooks_that_run_before_the_sum_of_the_ranks_are_refused(tmp_path):
    """An optimizer that steps in such a hook would make the parameters of the ranks differ."""
    text = "1.bias has a hook of register_post_accumulate_grad_hook"
    assert run_in_group(REGISTERS_HOOKS, tmp_path) == [f"{text} [] None"] * 3


def test_backward_broadcasts_no_buffers(tmp_path):
    """A broadcast would change buffers that the graph has saved: PyTorch 2.11 then raises."""
    assert run_in_group(PRINTS_COLLECTIVES, tmp_path) == ["['c10d::allreduce_']"]


def test_exit_waits_for_the_thread_that_completes_an_all_reduce(tmp_path):
    assert run_in_group(EXITS_EARLY, tmp_path) == ["1.0", "thread finished"]


def test_future_of_an_all_reduce_raises_any_error_of_the_back_end(tmp_path):
    lines = run_in_group(RAISES_OS_ERROR, tmp_path)
    assert any("seen from rank 0: connection lost" in line for line in lines)
