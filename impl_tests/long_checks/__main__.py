"""The checks that take longer than the gate: ``tox -e long -- [PART [ARGUMENT ...]]``.

Without PART, all parts run, one after the other. ARGUMENT is passed to the first command of PART.
"""

import argparse
import configparser
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from spec_tests.simulator import FEATURES

#: The module of a command, for ``python -m``, and the arguments of the module.
Command = Sequence[str]
_ROOT = Path(__file__).resolve().parents[2]
_TOX = configparser.RawConfigParser()
_TOX.read(_ROOT / "tox.ini")
#: The arguments of pytest that ``tox.ini`` lists.
OWN_TESTS, _ON_DEVICES = (
    _TOX["tests"][name].replace("\\", "").split() for name in ("own", "extensions")
)
PYTEST = ("pytest", "-n", "3", "--dist", "worksteal")
SUITE = (*PYTEST, "spec_tests", "--accelerator", "sim")
_BENCHMARKS = (
    "bench/bench_data_parallel.py",
    "bench/bench_parallel_apply.py",
    "bench/bench_replicate.py",
    "bench/bench_scatter_gather.py",
)
_RUN = f"{tempfile.gettempdir()}/torch-parallel-spec-benchmark.json"
#: For each part: its commands.
PARTS: dict[str, Sequence[Command]] = {
    # The slow tests of the command line, the plugin and the simulator.
    "slow": [(*PYTEST, *OWN_TESTS, "-m", "slow")],
    # The suite with new examples, more than in the gate, then on simulated devices that lack all
    # optional features, then one feature at a time.
    "suite": [
        (*SUITE, *_ON_DEVICES, "--hypothesis-profile", "new"),
        (*SUITE, *_ON_DEVICES, "--without", "all"),
        *((*SUITE, "--hypothesis-profile", "few", "--without", name) for name in FEATURES),
    ],
    # The suite without torch.nn.parallel, by the tests that need no comparison with it.
    "without-reference": [(*SUITE, "--reference", "none")],
    # The tests of each clause on impl with its perturbation; one must fail.
    "perturbations": [("impl_tests.long_checks.perturbations",)],
    # All parts of impl in many threads at once.
    "stress": [("impl_tests.long_checks.stress", "--minutes", "10")],
    # The benchmarks beside torch.nn.parallel, and their ratios beside the published ones.
    "ratios": [
        ("pytest", *_BENCHMARKS, f"--benchmark-json={_RUN}"),
        ("bench.compare", _RUN, "--before", "reports/benchmarks/impl/torch-2.13.0_sim.json"),
    ],
}


def main() -> int:
    """Run the named part, or all; return 1 if a command fails."""
    parser = argparse.ArgumentParser(prog="tox -e long --", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    options = parser.parse_args()
    if not options.part:
        return run(PARTS)
    first, *rest = PARTS[options.part]
    return run({options.part: [(*first, *options.arguments), *rest]})


def run(parts: Mapping[str, Sequence[Command]], python: str | Path = sys.executable) -> int:
    """Run the commands of parts; print those that fail, and return 1 if there is one."""
    failed = []
    for part, commands in parts.items():
        for command in commands:
            print("$ python -m", *command, flush=True)
            if subprocess.run([python, "-m", *command], cwd=_ROOT, check=False).returncode:
                failed.append(f"{part}: python -m {' '.join(command)}")
    print(*(["failed:", *failed] if failed else ["all commands passed"]), sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
