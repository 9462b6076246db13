"""Count launches, copies and waits of a training step, and time it, for both libraries.

``python -m reports.gpu.profile cuda FILE`` prints a table and writes the numbers to FILE.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import impl
from bench.models import WIDTH, build_blocks
from spec_tests.harness.environment.topology import Topology, make_topology

#: The names of profiler events that are counted begin with one of these texts.
_COUNTED = ("cuda", "Memcpy", "Memset", "aten::copy_", "aten::cat", "aten::item")
_LIBRARIES = {"torch.nn.parallel": nn.DataParallel, "impl": impl.DataParallel}


def main(accelerator: str, path: str) -> None:
    """Profile a step of 100 blocks on one device as two, and write the numbers."""
    topology = make_topology(accelerator, "0,0")
    steps = {name: _build_step(wrap, topology) for name, wrap in _LIBRARIES.items()}
    found = {name: _count_events(step, topology) for name, step in steps.items()}
    for name, seconds in _time_in_turn(steps).items():
        found[name]["median ms"] = round(1e3 * seconds, 2)
    Path(path).write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"{'':40}", *(f"{name:>18}" for name in found))
    for event in sorted({event for counts in found.values() for event in counts}):
        print(f"{event:40}", *(f"{counts.get(event, 0):>18}" for counts in found.values()))


def _build_step(wrap: Callable[..., nn.Module], topology: Topology) -> Callable[[], None]:
    device = topology.device(0)
    module = build_blocks(100, WIDTH).to(device)
    wrapped, x = wrap(module, list(topology.devices)), torch.randn(64, WIDTH, device=device)

    def step() -> None:
        module.zero_grad()
        wrapped(x).sum().backward()
        topology.synchronize()

    return step


def _count_events(step: Callable[[], None], topology: Topology) -> dict[str, float]:
    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU]
    if topology.accelerator == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as run:
        step()
    return {**Counter(each.name for each in run.events() if each.name.startswith(_COUNTED))}


def _time_in_turn(steps: dict[str, Callable[[], None]], rounds: int = 30) -> dict[str, float]:
    """Return the median seconds of each step, timed in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
