"""Count the work of calls of impl: ``python -m bench.counts`` compares it with ``counts.toml``.

A count is the same on a busy machine, and shows work that a ratio of times hides. The calls run on
simulated devices, at two sizes. The exit status is 1 if a count is larger than that in the file
for these releases of Python and torch. ``--write`` replaces the counts of these releases.
"""

import argparse
import gc
import platform
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

import impl
from bench.modules import WIDTH, Identity, build_blocks
from spec_tests import simulator

FILE = Path(__file__).with_name("counts.toml")
_DEVICES = 4
#: The sizes: blocks of four modules, or tensors in a list.
_SIZES = (10, 100)
#: The number of measurements of each call. The least count is taken.
_ATTEMPTS = 3
#: The allowed growth of Python calls. Some calls depend on the order of threads.
_TOLERANCE = 0.02
#: For each count: the functions of C whose calls are counted.
_FUNCTIONS = {
    "waits": ("synchronize", "wait", "wait_event", "wait_stream"),
    "events": ("record", "record_event", "record_stream"),
    "switches of devices and streams": (
        "_accelerator_exchangeDevice",
        "_accelerator_setDeviceIndex",
        "_accelerator_setStream",
    ),
    "threads woken": ("put",),
}
Counts = dict[str, int]


def _make_calls() -> dict[str, Callable[[], object]]:
    """Return the counted calls by name."""
    devices = [torch.device("sim", index) for index in range(_DEVICES)]
    calls: dict[str, Callable[[], object]] = {}
    for size in _SIZES:
        net = build_blocks(size).to(devices[0])
        x = torch.ones(2 * _DEVICES, WIDTH, device=devices[0])
        wrapper = impl.DataParallel(net, devices)
        calls[f"forward blocks={size}"] = partial(wrapper, x)
        calls[f"forward+backward blocks={size}"] = partial(_train, wrapper, x)
        calls[f"replicate blocks={size}"] = partial(impl.replicate, net, devices)
        on_device, on_cpu = [x] * size, [x.cpu()] * size
        calls[f"scatter tensors={size}"] = partial(impl.scatter, on_device, devices)
        calls[f"scatter from the CPU tensors={size}"] = partial(impl.scatter, on_cpu, devices)
        parts = impl.scatter(on_device, devices)
        calls[f"gather tensors={size}"] = partial(impl.gather, parts, devices[0])
    for count in (2, _DEVICES):
        modules, rows = [Identity() for _ in range(count)], [[torch.ones(1)]] * count
        calls[f"parallel_apply modules={count}"] = partial(impl.parallel_apply, modules, rows)
    return calls


def _train(net: nn.Module, x: Tensor) -> None:
    net(x).sum().backward()


def measure(calls: Mapping[str, Callable[[], object]]) -> dict[str, Counts]:
    """Return the counts of each call."""
    counts = {name: _least(call) for name, call in calls.items()}
    # PyTorch's profiler changes the state of threads, so it runs after the other counts.
    return {name: counts[name] | _count_operators(call) for name, call in calls.items()}


def _least(call: Callable[[], object]) -> Counts:
    call()
    found = [
        _count_functions(call) | {"garbage collections": _count_collections(call)}
        for _ in range(_ATTEMPTS)
    ]
    return {name: min(each[name] for each in found) for name in found[0]}


def _count_operators(function: Callable[[], object]) -> Counts:
    """Count the operators that all threads dispatch."""
    config = _ExperimentalConfig(profile_all_threads=True)
    # Without acc_events PyTorch 2.12 warns that a second cycle would discard the events.
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        experimental_config=config,
        acc_events=True,
    ) as profiled:
        function()
    results: Any = profiled.profiler
    events = [each for each in results.kineto_results.events() if each.name().startswith("aten::")]
    copies = [each.shapes()[0] for each in events if each.name() == "aten::copy_"]
    return {
        "operators": len(events),
        "copies": len(copies),
        "copied elements": sum(torch.Size(shape).numel() for shape in copies),
        "allocations": sum(each.name().startswith("aten::empty") for each in events),
    }


def _count_functions(function: Callable[[], object]) -> Counts:
    """Count the calls of impl's Python functions, and of functions of C, in all threads."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, function: Any) -> None:
        if event == "call" and str(frame.f_globals.get("__name__")).partition(".")[0] == "impl":
            counts["Python calls"] += 1
        elif event == "c_call":
            counts[getattr(function, "__name__", "")] += 1

    _set_profile(count)
    try:
        function()
    finally:
        _set_profile(None)
    groups = {name: sum(counts[each] for each in names) for name, names in _FUNCTIONS.items()}
    return {"Python calls": counts["Python calls"], **groups}


def _set_profile(function: Any) -> None:
    """Set the profile function of this thread and of the threads that start later."""
    threading.setprofile(function)
    sys.setprofile(function)


def _count_collections(function: Callable[[], object]) -> int:
    found: list[str] = []

    def record(phase: str, info: object) -> None:
        found.append(phase)

    gc.collect()
    gc.callbacks.append(record)
    try:
        function()
    finally:
        gc.callbacks.remove(record)
    return found.count("start")


def find_growth(counts: Mapping[str, Counts], allowed: Mapping[str, Counts]) -> list[str]:
    """Return a line for each count that is larger than allowed, and for each call without one."""
    lines = [f"{call}: not in the file" for call in counts.keys() - allowed.keys()]
    return lines + [
        f"{call}: {number} {name}, not {allowed[call].get(name, 0)}"
        for call in counts
        if call in allowed
        for name, number in counts[call].items()
        if number > allowed[call].get(name, 0) * (1 + _TOLERANCE * (name == "Python calls"))
    ]


def main() -> int:
    """Compare the counts with the file, or write them; return 1 if one is larger."""
    parser = argparse.ArgumentParser(prog="python -m bench.counts", description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the counts in the file")
    options = parser.parse_args()
    simulator.enable(_DEVICES)
    torch.set_num_threads(1)
    torch.autograd.set_multithreading_enabled(False)  # Python does not profile autograd's threads.
    counts = measure(_make_calls())
    release = ".".join(platform.python_version_tuple()[:2])
    key = f"Python {release}, torch {torch.__version__.partition('+')[0]}"
    known = tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if options.write:
        FILE.write_text(_format({**known, key: counts}), encoding="utf-8")
        return 0
    if key not in known:
        print(f"counts.toml has no counts for {key}; it has {', '.join(known)}")
        return 0
    # The number of switches depends on the worker that a device gets.
    if smaller := [each for each in find_growth(known[key], counts) if "switches" not in each]:
        print("the counts are now smaller: lower them in counts.toml", *smaller, sep="\n  ")
    growth = find_growth(counts, known[key])
    print(*(growth or [f"{len(counts)} calls, no count is larger than in counts.toml"]), sep="\n")
    return int(bool(growth))


def _format(known: Mapping[str, Mapping[str, Counts]]) -> str:
    lines = ["# Written by python -m bench.counts --write. A count may not grow."]
    for key in sorted(known):
        lines += ["", f'["{key}"]']
        for call, counts in known[key].items():
            numbers = ", ".join(f'"{name}" = {number}' for name, number in counts.items())
            lines.append(f'"{call}" = {{ {numbers} }}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
