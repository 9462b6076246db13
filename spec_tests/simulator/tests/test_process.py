"""The simulated accelerator in a process: build, enable, fork and exit."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from spec_tests import simulator
from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.simulator import build

pytestmark = [pytest.mark.usefixtures("sim"), pytest.mark.slow]


def run(code, **environment):
    """Run Python code in a new process, where every warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (3, "sim already has 4 devices and cannot change to 3"),
        (0, "sim can have 1 to 64 devices, not 0"),
        (65, "sim can have 1 to 64 devices, not 65"),
    ],
)
def test_enable_rejects_another_number_of_devices(count, message):
    simulator.enable(device_count=4)
    with pytest.raises((RuntimeError, ValueError), match=message):
        simulator.enable(device_count=count)


def test_process_that_ran_a_backward_pass_keeps_its_exit_status():
    done = run(
        """
        import torch
        from spec_tests import simulator
        simulator.enable(7)
        x = torch.ones(3, device="sim:6", requires_grad=True)
        (x * 2).sum().backward()
        raise SystemExit(torch.accelerator.device_count())
        """
    )
    assert (done.returncode, done.stderr) == (7, "")


def test_the_library_depends_on_contents_and_torch_version(tmp_path, monkeypatch):
    library = build.library()
    copied = shutil.copytree(build.SOURCES, tmp_path / "elsewhere")
    assert build.library(copied) == library
    (copied / "sim.h").write_text("")
    assert build.library(copied) != library
    monkeypatch.setattr(torch, "__version__", "another")
    assert build.library() != library


def test_child_process_keeps_the_lock(tmp_path):
    output = tmp_path / "output"
    with build._lock_file(tmp_path / "lock") as lock:
        command = ["sh", "-c", f"sleep 0.5; touch {output}"]
        compiler = subprocess.Popen(command, pass_fds=[lock])
    with build._lock_file(tmp_path / "lock"):
        assert output.exists()
    assert compiler.wait() == 0


def test_forked_child_computes_on_the_cpu_only():
    done = run(
        """
        import os, torch
        from spec_tests import simulator
        simulator.enable(2)
        x = torch.ones(3, device="sim:1")
        child = os.fork()
        if child == 0:
            torch.manual_seed(0)  # does not seed devices that this process cannot use
            assert not torch.sim.is_initialized()
            assert torch.ones(3).sum().item() == 3
            x.cpu()
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.returncode == 1
    assert "Cannot re-initialize sim in forked subprocess" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts the threads in /proc")
def test_operators_start_no_openmp_threads():
    code = """
        import os
        import torch
        from spec_tests import simulator
        simulator.enable(device_count=2)
        torch.ones(1, device="sim") + 1  # The first operator may start threads.
        for device in ("sim", "cpu"):
            before = len(os.listdir("/proc/self/task"))
            torch.ones(2048, 2048, device=device).softmax(1)
            print(device, len(os.listdir("/proc/self/task")) - before)
    """
    done = run(code, OMP_NUM_THREADS="2")
    assert (done.stdout, done.stderr) == ("sim 0\ncpu 1\n", "")
