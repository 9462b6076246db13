"""Run the same calls on the simulator and on a real accelerator, and print the differences."""

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import make_topology

from .calls import draw_calls
from .records import Difference, Record, find_differences, record_outcomes

TARGETS = ("torch.nn.parallel", "impl")
#: Maximum number of differences in the JSON file.
_MAX_LISTED = 1000


def main(arguments: list[str]) -> int:
    """Compare both accelerators. With ``--record``, only write the outcomes of one accelerator."""
    options = _parser().parse_args(arguments)
    if options.record is not None:
        _write_record(options)
        return 0
    simulated, real = _run_both(options)
    found = list(find_differences(simulated, real))
    for difference in found[:20]:
        print(f"{difference.target} {difference.call}\n  {difference.text}")
    print(f"{len({**simulated, **real})} calls compared, {len(found)} differ")
    if options.json is not None:
        options.json.write_text(
            json.dumps(_summarize(simulated, found), indent=1), encoding="utf-8"
        )
    return int(bool(found) or not simulated)


def _summarize(simulated: Record, differences: Sequence[Difference]) -> dict[str, object]:
    listed = [asdict(difference) for difference in differences[:_MAX_LISTED]]
    return {"calls": len(simulated), "differing": len(differences), "differences": listed}


def _write_record(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # the other process runs at the same time
    topology = make_topology(options.accelerator, options.device_ids)
    found = record_outcomes(
        draw_calls(options.examples), [Target(name) for name in TARGETS], topology
    )
    options.record.write_bytes(pickle.dumps(found))


def _run_both(options: argparse.Namespace) -> tuple[Record, Record]:
    """Record in two processes; return the records of the simulator and of the accelerator."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("simulated", "real")]
        pairs = zip(("sim", options.accelerator), files, strict=True)
        running = [
            subprocess.Popen(_recording_command_line(options, accelerator, file))
            for accelerator, file in pairs
        ]
        statuses = [process.wait() for process in running]
        if any(statuses):
            raise SystemExit("a recording process failed")
        simulated, real = (pickle.loads(file.read_bytes()) for file in files)
    return simulated, real


def _recording_command_line(
    options: argparse.Namespace, accelerator: str, file: Path
) -> list[str]:
    head = [sys.executable, "-m", __package__, "--record", str(file)]
    devices = ["--accelerator", accelerator, "--device-ids", options.device_ids]
    return [*head, *devices, "--examples", str(options.examples)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulator_comparison", description=__doc__)
    add = parser.add_argument
    add("--accelerator", default="cuda", help="accelerator to compare with (default: cuda)")
    add("--device-ids", default="0,0,0,0", help="device ordinals on both (default: 0,0,0,0)")
    add("--examples", type=int, default=100, help="calls per strategy (default: 100)")
    add("--json", type=Path, metavar="FILE", help="write the differences to FILE")
    add("--record", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
