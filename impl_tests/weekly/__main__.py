"""The checks that take longer than the gate: ``tox -e weekly -- [PART [ARGUMENT ...]]``.

Without PART, all parts run, one after the other. ARGUMENT is passed to the first command of PART.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spec_tests.simulator import FEATURES

__all__ = ["PARTS", "main"]

_ROOT = Path(__file__).resolve().parents[2]
_PYTEST = ("pytest", "-n", "3", "--dist", "worksteal")
_SUITE = (*_PYTEST, "spec_tests", "--accelerator", "sim")
_FEATURES = ("impl_tests/extras", "impl_tests/distributed")
_TEST_FOLDERS = [
    str(path.relative_to(_ROOT))
    for top in ("reports", "spec_tests")
    for path in sorted((_ROOT / top).rglob("tests"))
]
_BENCHMARKS = (
    "bench/bench_data_parallel.py",
    "bench/bench_distributed.py",
    "bench/bench_parallel_apply.py",
    "bench/bench_replicate.py",
    "bench/bench_scatter_gather.py",
)
_RUN = f"{tempfile.gettempdir()}/torch-parallel-spec-benchmark.json"
#: Name of a part -> its commands: each is a module for ``python -m``, and the module's arguments.
PARTS: dict[str, Sequence[Sequence[str]]] = {
    # The slow tests of the command line, the plugin, the simulator and the fault harness.
    "machinery": [(*_PYTEST, *_TEST_FOLDERS, "impl_tests", "-m", "machinery")],
    # The suite with more examples than in the gate, then on simulated devices that lack all
    # optional features, then one feature at a time.
    "profiles": [
        (*_SUITE, *_FEATURES),
        (*_SUITE, *_FEATURES, "--features", "lean"),
        *((*_SUITE, "--hypothesis-profile", "few", "--without", name) for name in FEATURES),
    ],
    # The suite without torch.nn.parallel, by the tests that need no comparison with it.
    "alone": [(*_SUITE, "--reference", "none")],
    # The suite on impl with the perturbation of each clause, one at a time; it must fail.
    "wrong": [("impl_tests.weekly.wrong",)],
    # The tests on impl with one small change at a time.
    "mutation": [("impl_tests.weekly.mutation",), ("impl_tests.weekly.mutation", "--orderings")],
    # Faults in calls, and lost ranks.
    "faults": [
        ("impl_tests.weekly.faults", "--count", "2400"),
        ("impl_tests.weekly.faults.ranks",),
    ],
    # All parts of impl in many threads; memory, threads and objects must not grow.
    "stress": [("impl_tests.weekly.stress", "--minutes", "10")],
    # The benchmarks beside torch.nn.parallel, and their smallest allowed ratios.
    "ratios": [
        ("pytest", *_BENCHMARKS, f"--benchmark-json={_RUN}"),
        ("bench.compare", _RUN),
    ],
}


def main() -> int:
    """Run the named part, or all; return 1 if a command fails."""
    parser = argparse.ArgumentParser(prog="tox -e weekly --", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    options = parser.parse_args()
    failed = []
    for part in [options.part] if options.part else PARTS:
        first, *rest = PARTS[part]
        for command in [(*first, *options.arguments), *rest]:
            print("$ python -m", *command, flush=True)
            if subprocess.run([sys.executable, "-m", *command], cwd=_ROOT, check=False).returncode:
                failed.append(f"{part}: python -m {' '.join(command)}")
    print(*(["failed:", *failed] if failed else ["all commands passed"]), sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
