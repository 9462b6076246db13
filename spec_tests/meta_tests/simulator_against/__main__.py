"""Make the same drawn calls on the simulator and on an accelerator, and list what differs."""

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

from .calls import drawn
from .records import Difference, Record, differences, record

TARGETS = ("torch.nn.parallel", "impl")
#: How many differences are written down.
_LISTED = 1000


def main(arguments: list[str]) -> int:
    """Compare, or with ``--record`` make the calls of one side."""
    options = _parser().parse_args(arguments)
    if options.record is not None:
        _record(options)
        return 0
    simulated, real = _both(options)
    found = list(differences(simulated, real))
    for each in found[:20]:
        print(f"{each.target} {each.call}\n  {each.text}")
    print(f"{len({**simulated, **real})} calls on both, {len(found)} differ")
    if options.json is not None:
        options.json.write_text(json.dumps(_page(simulated, found), indent=1), encoding="utf-8")
    return int(bool(found) or not simulated)


def _page(simulated: Record, found: Sequence[Difference]) -> dict[str, object]:
    listed = [asdict(each) for each in found[:_LISTED]]
    return {"calls": len(simulated), "differing": len(found), "differences": listed}


def _record(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # the other side runs beside it
    topology = make_topology(options.accelerator, options.device_ids)
    found = record(drawn(options.examples), [Target(name) for name in TARGETS], topology)
    options.record.write_bytes(pickle.dumps(found))


def _both(options: argparse.Namespace) -> tuple[Record, Record]:
    """The simulator's record and the accelerator's, made side by side."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("simulated", "real")]
        pairs = zip(("sim", options.accelerator), files, strict=True)
        running = [subprocess.Popen(_side(options, kind, file)) for kind, file in pairs]
        statuses = [process.wait() for process in running]
        if any(statuses):
            raise SystemExit("a side could not make its calls")
        simulated, real = (pickle.loads(file.read_bytes()) for file in files)
    return simulated, real


def _side(options: argparse.Namespace, accelerator: str, file: Path) -> list[str]:
    head = [sys.executable, "-m", __package__, "--record", str(file)]
    where = ["--accelerator", accelerator, "--device-ids", options.device_ids]
    return [*head, *where, "--examples", str(options.examples)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulator_against", description=__doc__)
    add = parser.add_argument
    add("--accelerator", default="cuda", help="the other side (default: cuda)")
    add("--device-ids", default="0,0,0,0", help="ordinals of both (default: 0,0,0,0)")
    add("--examples", type=int, default=100, help="calls of each strategy (default: 100)")
    add("--json", type=Path, metavar="FILE", help="write what differs there")
    add("--record", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
