"""impl/distributed/README.md: its program prints the loss that a single process computes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import impl

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "impl" / "distributed" / "README.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
#: Seconds after which a program counts as hung.
TIME_LIMIT = 200


def run_torchrun(program, folder, processes):
    script = folder / "train.py"
    script.write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node", str(processes), str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )


def compute_loss_in_one_process(replica_count):
    """Train as the program does, with ``impl.DataParallel`` in this process; return the loss."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    wrapped = impl.DataParallel(net, ["cpu"] * replica_count)
    for _ in range(3):
        x, y = torch.randn(7, 4), torch.randn(7, 1)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def test_program_prints_the_loss_of_one_process(tmp_path):
    completed = run_torchrun(PROGRAM, tmp_path, 2)
    assert completed.returncode == 0, completed.stderr
    printed = float(re.fullmatch(r"loss ([\d.]+)\n", completed.stdout).group(1))
    assert printed == pytest.approx(compute_loss_in_one_process(2), abs=2e-6)


def test_killed_rank_ends_the_program(tmp_path):
    line = "    optimizer.zero_grad()\n"
    killed = "    if dist.get_rank() == 1: import os; os.kill(os.getpid(), 9)\n"
    assert line in PROGRAM
    completed = run_torchrun(PROGRAM.replace(line, line + killed), tmp_path, 2)
    assert completed.returncode != 0
    assert "Signal 9 (SIGKILL)" in completed.stderr or "rank 1 of 2 has ended" in completed.stderr
