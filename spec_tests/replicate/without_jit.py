"""Replicate a module in a process with TorchScript disabled.

``python -m spec_tests.replicate.without_jit TARGET ACCELERATOR MAPPING`` replicates a
`PartlyBuiltScript` before its child is scripted, and prints the number of replicas. With
TorchScript, this module is a script module with a Python child. With TorchScript disabled, it is
a plain module. MAPPING is a JSON object: `Target.mapping`, the value of ``--target-map``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology, make_topology
from spec_tests.strategies.jit_modules import PartlyBuiltScript

ROOT = Path(__file__).resolve().parents[2]


def count_replicas(target: Target, topology: Topology) -> int:
    """Run this module for ``target`` in a new process, and return the number that it prints.

    Raises:
        AssertionError: The process fails; the text is its stderr.
    """
    arguments = [sys.executable, "-m", __name__, target.name, topology.accelerator]
    arguments.append(json.dumps(target.mapping))
    environment = {**os.environ, "PYTORCH_JIT": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])  # A back end may print more.


def main(target_name: str, accelerator: str, mapping: str) -> None:
    """Replicate a module to two devices and print the number of replicas."""
    topology, target = make_topology(accelerator, None), Target(target_name, json.loads(mapping))

    def replicate_and_print(unfinished: PartlyBuiltScript) -> None:
        module = unfinished.to(topology.device(0))
        print(len(target.replicate.replicate(module, topology.take(2))))

    PartlyBuiltScript(replicate_and_print)


if __name__ == "__main__":
    main(*sys.argv[1:])
