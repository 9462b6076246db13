"""The steps and their time limits, the most informative step first."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["Setup", "Step", "list_steps"]

#: Values of ``--device-ids`` that use one GPU as two, three or four devices.
TWO, THREE, FOUR = (",".join("0" * count) for count in (2, 3, 4))
#: The plug-ins that pytest loads. Other plug-ins on the machine are not loaded.
_PLUGINS = ("xdist.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
_BENCHMARK = "pytest_benchmark.plugin"
_NO_AUTOLOAD = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
#: Folders of the suite that are run with the sanitizers.
_CORE = ("spec_tests/comm", "spec_tests/functions")
#: Folders of the suite that are run with delayed inputs: their functions copy between devices.
_LATE = (*_CORE, *(f"spec_tests/{each}" for each in ("scatter_gather", "parallel_apply")))
#: Program of the step ``machine``: print versions and hardware.
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
    """Folders and machine of one run of the command.

    Args:
        out: The folder for the results.
        accelerator: ``cuda``, or ``sim`` to try the command without a GPU.
        workers: The number of processes that run tests.
    """

    out: Path
    accelerator: str
    workers: int


@dataclass(frozen=True)
class Step:
    """A step: one process to run.

    Args:
        name: The step's name in the results.
        purpose: A few words for the output.
        command: Program and arguments.
        seconds: The time limit of the process, in seconds.
        verdicts: The file of verdicts that the step writes. A step with this file can be resumed.
        environment: Additional environment variables.
        skip_reason: Why the step cannot run on this machine; None if it can.
    """

    name: str
    purpose: str
    command: tuple[str, ...]
    seconds: int
    verdicts: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    skip_reason: str | None = None


def list_steps(setup: Setup) -> list[Step]:
    """Return all steps.

    Three runs of the command, of nine minutes each, are enough for the time limits of all steps.
    """
    return [
        Step("machine", "versions and hardware", (sys.executable, "-c", _MACHINE), 30),
        *_verdict_steps(setup),
        *_comparison_steps(setup),
        *_sanitizer_steps(setup),
    ]


def _verdict_steps(setup: Setup) -> list[Step]:
    suite = ("spec_tests", "--deselect=spec_tests/cpp_front_end")
    stand_ins = ("spec_tests/cuda_stand_ins/tests/test_against_cuda.py",)
    # The first test compiles the C++ front end while the other tests wait.
    front_end = ("spec_tests/cpp_front_end", "--timeout=140")
    suite_on_reference = (*suite, "--target=torch.nn.parallel")
    return [
        _test_step(setup, "suite-2", "impl, one GPU as two", 150, "verdicts-2", TWO, suite),
        _test_step(setup, "suite-3", "impl, one GPU as three", 120, "verdicts-3", THREE, suite),
        _test_step(
            setup, "stand-ins", "stand-ins against CUDA's primitives", 60, "checks", TWO, stand_ins
        ),
        _test_step(
            setup, "reference", "torch.nn.parallel", 150, "reference", TWO, suite_on_reference
        ),
        _test_step(setup, "front-end", "C++ front end", 150, "checks", TWO, front_end),
        _test_step(setup, "late", "late inputs", 120, "checks", TWO, (*_LATE, "--late=2")),
    ]


def _comparison_steps(setup: Setup) -> list[Step]:
    program = (sys.executable, "-m", "reports.gpu_day.comparison")
    devices = ("--accelerator", setup.accelerator, "--device-ids", FOUR)
    output = ("--json", str(setup.out / "differences.json"))
    comparison = (*program, *devices, *output, "--examples=40")
    # The simulator replaces the functions that this benchmark times.
    comm = _benchmark_step(setup, "bench-comm", 120, FOUR, "comm")
    return [
        Step("differences", "simulator against GPU", comparison, 120),
        # Separate steps, because a run of benchmarks writes no result if it is killed.
        replace(comm, skip_reason=None if setup.accelerator == "cuda" else "needs CUDA"),
        _benchmark_step(
            setup, "bench-parts", 120, FOUR, "replicate", "parallel_apply", "scatter_gather"
        ),
        _benchmark_step(setup, "bench-4", 60, FOUR, "data_parallel"),
        _benchmark_step(setup, "bench-2", 60, TWO, "data_parallel"),
    ]


def _sanitizer_steps(setup: Setup) -> list[Step]:
    tests = _pytest_command(setup, TWO, (*_CORE, "--hypothesis-profile=few"), timeout=170)
    # PyTorch's caching allocator would hide reads past the end of a block.
    uncached = {**_NO_AUTOLOAD, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    sanitized = {**_NO_AUTOLOAD, "TORCH_CUDA_SANITIZER": "1"}
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    memcheck = (tool, "--tool=memcheck", "--target-processes=all", "--error-exitcode=99", *tests)
    nccl = (sys.executable, "-m", "reports.gpu_day.nccl")
    no_cuda = None if setup.accelerator == "cuda" else "needs CUDA"
    missing = None if Path(tool).exists() else "this machine has no compute-sanitizer"
    no_tool = no_cuda or missing
    return [
        Step(
            "memcheck", "memory accesses", memcheck, 180, environment=uncached, skip_reason=no_tool
        ),
        Step("order", "order of streams", tests, 100, environment=sanitized, skip_reason=no_cuda),
        Step("nccl", "one rank of NCCL", nccl, 50, skip_reason=no_cuda),
    ]


def _test_step(
    setup: Setup,
    name: str,
    purpose: str,
    seconds: int,
    verdicts_name: str,
    device_ids: str,
    arguments: tuple[str, ...],
) -> Step:
    verdicts = setup.out / f"{verdicts_name}.jsonl"
    workers = ("-n", str(setup.workers), "--resume", "--verdicts", str(verdicts))
    command = _pytest_command(setup, device_ids, (*arguments, *workers))
    return Step(name, purpose, command, seconds, verdicts, environment=_NO_AUTOLOAD)


def _benchmark_step(setup: Setup, name: str, seconds: int, device_ids: str, *topics: str) -> Step:
    """Return a step that runs ``bench/bench_TOPIC.py`` for each topic."""
    json = f"--benchmark-json={setup.out / f'{name}.json'}"
    options = ("-p", _BENCHMARK, "--benchmark-max-time=0.5", json)
    files = tuple(f"bench/bench_{topic}.py" for topic in topics)
    command = _pytest_command(setup, device_ids, (*files, *options))
    purpose = f"{', '.join(topics)}, one GPU as {len(device_ids.split(','))}"
    return Step(name, purpose, command, seconds, environment=_NO_AUTOLOAD)


def _pytest_command(
    setup: Setup, device_ids: str, arguments: tuple[str, ...], timeout: int = 60
) -> tuple[str, ...]:
    plugins = tuple(part for name in _PLUGINS for part in ("-p", name))
    devices = ("--accelerator", setup.accelerator, "--device-ids", device_ids)
    # The method "thread" also ends a test that hangs in C++, by ending its process.
    limits = (f"--timeout={timeout}", "--timeout-method=thread", "-p", "no:cacheprovider")
    head = (sys.executable, "-m", "pytest", "-q", "--tb=short")
    return (*head, *plugins, *limits, *devices, *arguments)
