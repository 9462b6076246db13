"""The steps with their time limits, the most informative first."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["Setup", "Step", "list_steps"]

#: Device ids: one GPU is used as several devices.
TWO, THREE, FOUR = (",".join("0" * count) for count in (2, 3, 4))
#: The only plug-ins of pytest that are loaded; the machine may have others.
_PLUGINS = ("xdist.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
_BENCHMARK = "pytest_benchmark.plugin"
_NO_AUTOLOAD = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
_CORE = ("spec_tests/comm", "spec_tests/functions")
_LATE = (*_CORE, *(f"spec_tests/{each}" for each in ("scatter_gather", "parallel_apply")))
_MACHINE = """
import json, os, platform, torch
about = {"torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
if torch.cuda.is_available():
    card = torch.cuda.get_device_properties(0)
    about |= {"gpu": card.name, "MiB": card.total_memory >> 20, "cuda": torch.version.cuda}
    about |= {"capability": [card.major, card.minor], "nccl": torch.cuda.nccl.version()}
print(json.dumps(about))
"""


@dataclass(frozen=True)
class Setup:
    """Folders and machine.

    Args:
        out: The folder of the results.
        scratch: A folder for temporary files.
        accelerator: ``cuda``, or ``sim`` to try the command itself.
        workers: The number of processes of a run of tests.
    """

    out: Path
    scratch: Path
    accelerator: str
    workers: int


@dataclass(frozen=True)
class Step:
    """One process to run.

    Args:
        name: The name in the results.
        purpose: The purpose in a few words.
        command: Program and arguments.
        seconds: The time limit in one call.
        verdicts: The file of verdicts; a step with this file can be resumed.
        benchmark: The file that pytest-benchmark writes.
        environment: Additional environment variables.
        skip_reason: The reason if the step cannot run on this machine.
    """

    name: str
    purpose: str
    command: tuple[str, ...]
    seconds: int
    verdicts: Path | None = None
    benchmark: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    skip_reason: str | None = None


def list_steps(setup: Setup) -> list[Step]:
    """Return all steps. Their limits fit into three calls of nine minutes."""
    return [
        Step("machine", "versions and hardware", (sys.executable, "-c", _MACHINE), 30),
        *_verdict_steps(setup),
        *_comparison_steps(setup),
        *_sanitizer_steps(setup),
    ]


def _verdict_steps(setup: Setup) -> list[Step]:
    suite = ("spec_tests", "--ignore=spec_tests/meta_tests", "--deselect=spec_tests/cpp_front_end")
    stand_ins = ("spec_tests/meta_tests/test_reference_against_cuda.py",)
    # The first test compiles the front end while the others wait.
    front_end = ("spec_tests/cpp_front_end", "--timeout=140")
    to_reference = (*suite, "--target=torch.nn.parallel")
    return [
        _test_step(setup, "suite-2", "impl, one GPU as two", 150, "verdicts-2", TWO, suite),
        _test_step(setup, "suite-3", "impl, one GPU as three", 120, "verdicts-3", THREE, suite),
        _test_step(
            setup, "stand-ins", "stand-ins against CUDA's primitives", 60, "checks", TWO, stand_ins
        ),
        _test_step(setup, "reference", "torch.nn.parallel", 150, "reference", TWO, to_reference),
        _test_step(setup, "front-end", "C++ front end", 150, "checks", TWO, front_end),
        _test_step(setup, "late", "late inputs", 120, "checks", TWO, (*_LATE, "--late=2")),
    ]


def _comparison_steps(setup: Setup) -> list[Step]:
    against = (sys.executable, "-m", "spec_tests.meta_tests.simulator_comparison")
    where = ("--accelerator", setup.accelerator, "--device-ids", FOUR)
    written = ("--json", str(setup.out / "differences.json"))
    comparison = (*against, *where, *written, "--examples=40")
    # On the simulator the reference uses stand-ins, so its times are meaningless.
    comm = _benchmark_step(setup, "bench-comm", 120, FOUR, "comm")
    return [
        Step("differences", "simulator against GPU", comparison, 120),
        # Several steps: a run of benchmarks writes nothing if it is killed.
        replace(comm, skip_reason=None if setup.accelerator == "cuda" else "needs CUDA"),
        _benchmark_step(
            setup, "bench-parts", 120, FOUR, "replicate", "parallel_apply", "scatter_gather"
        ),
        _benchmark_step(setup, "bench-4", 60, FOUR, "data_parallel"),
        _benchmark_step(setup, "bench-2", 60, TWO, "data_parallel"),
    ]


def _sanitizer_steps(setup: Setup) -> list[Step]:
    few = _pytest_command(setup, TWO, (*_CORE, "--hypothesis-profile=few"), timeout=170)
    # The caching allocator would hide reads past the end of a block.
    plain = {**_NO_AUTOLOAD, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    traced = {**_NO_AUTOLOAD, "TORCH_CUDA_SANITIZER": "1"}
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    checked = (tool, "--tool=memcheck", "--target-processes=all", "--error-exitcode=99", *few)
    nccl = (sys.executable, "-m", "reports.gpu_day.nccl")
    no_cuda = None if setup.accelerator == "cuda" else "needs CUDA"
    missing = None if Path(tool).exists() else "this machine has no compute-sanitizer"
    no_tool = no_cuda or missing
    return [
        Step("memcheck", "memory accesses", checked, 180, environment=plain, skip_reason=no_tool),
        Step("order", "order of streams", few, 100, environment=traced, skip_reason=no_cuda),
        Step("nccl", "one rank of NCCL", nccl, 50, skip_reason=no_cuda),
    ]


def _test_step(
    setup: Setup,
    name: str,
    purpose: str,
    seconds: int,
    file: str,
    ids: str,
    arguments: tuple[str, ...],
) -> Step:
    verdicts = setup.out / f"{file}.jsonl"
    workers = ("-n", str(setup.workers), "--resume", "--verdicts", str(verdicts))
    command = _pytest_command(setup, ids, (*arguments, *workers))
    return Step(name, purpose, command, seconds, verdicts, environment=_NO_AUTOLOAD)


def _benchmark_step(setup: Setup, name: str, seconds: int, ids: str, *topics: str) -> Step:
    file = setup.scratch / f"{name}.json"
    options = ("-p", _BENCHMARK, "--benchmark-max-time=0.5", f"--benchmark-json={file}")
    files = tuple(f"bench/bench_{topic}.py" for topic in topics)
    command = _pytest_command(setup, ids, (*files, *options))
    purpose = f"{', '.join(topics)}, one GPU as {len(ids.split(','))}"
    return Step(name, purpose, command, seconds, benchmark=file, environment=_NO_AUTOLOAD)


def _pytest_command(
    setup: Setup, ids: str, arguments: tuple[str, ...], timeout: int = 60
) -> tuple[str, ...]:
    plugins = tuple(part for name in _PLUGINS for part in ("-p", name))
    where = ("--accelerator", setup.accelerator, "--device-ids", ids)
    # The thread method also ends tests that hang outside Python, with their process.
    limits = (f"--timeout={timeout}", "--timeout-method=thread", "-p", "no:cacheprovider")
    head = (sys.executable, "-m", "pytest", "-q", "--tb=short")
    return (*head, *plugins, *limits, *where, *arguments)
