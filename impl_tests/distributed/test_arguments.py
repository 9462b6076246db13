"""impl.distributed: errors that wrong arguments raise, in a process group of one rank."""

from impl_tests.samples import run_python

PROGRAM = """
import sys
from unittest.mock import Mock
import torch
import torch.distributed as dist
from torch import nn
from impl.distributed import DataParallel

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)


def report(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", getattr(error, "__notes__", []))


report(DataParallel, len)
report(DataParallel, nn.Linear(1, 1), dim=Mock(spec=torch.Tensor))
report(DataParallel, nn.Linear(1, 1), source=True)
report(DataParallel, nn.Linear(1, 1), source=1)
report(DataParallel, nn.Linear(1, 1), chunk_sizes=1)
net = DataParallel(nn.Linear(1, 1))
report(net.mean, Mock(spec=torch.Tensor))
report(net.mean, torch.ones(0))
report(net.part, torch.tensor([]).to_sparse_coo())
dist.destroy_process_group()
"""


def test_errors_name_the_argument(tmp_path):
    completed = run_python(PROGRAM, str(tmp_path / "store"))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[:7] == [
        "TypeError: module must be a Module, not builtin_function_or_method []",
        "TypeError: dim must be an int, not Mock ['Argument: dim']",
        "TypeError: source must be an int, not bool ['Argument: source']",
        "ValueError: source 1 is not a rank of a group of 1 ranks []",
        "TypeError: object of type 'int' has no len() ['Argument: chunk_sizes']",
        "TypeError: losses must be a tensor, not Mock []",
        "ValueError: all ranks have passed losses without elements to mean []",
    ]
    assert completed.stdout.rstrip().endswith("['Argument: value']")
