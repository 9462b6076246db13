"""replicate: script modules."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from torch import nn

from spec_tests import checks
from spec_tests.checks.refusals import check_error
from spec_tests.machine import profiles
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.strategies.compiled_modules import PartlyBuiltScript, script_calls

#: Decorator that runs a third of the usual number of examples, because each is slow.
FEWER_EXAMPLES = profiles.divide_examples(3)

#: A program that prints the number of replicas of a `PartlyBuiltScript`. Without TorchScript, this
#: is a plain module.
WITHOUT_JIT = """
from spec_tests.machine.target import Target
from spec_tests.machine.devices import make_topology
from spec_tests.strategies.compiled_modules import PartlyBuiltScript

topology, target = make_topology({!r}, None), Target({!r}, {!r})

def replicate(unfinished):
    module = unfinished.to(topology.device(0))
    print(len(target.replicate.replicate(module, topology.take(2))))

PartlyBuiltScript(replicate)
"""


def _identity(module):
    return module


#: For each clause: kinds of script modules.
KINDS_OF_CLAUSES = {
    "replicate.script.scripted": ["scripted"],
    "replicate.script.traced": ["traced"],
    "replicate.script.below-python": ["below_python"],
}


@cases("kind", KINDS_OF_CLAUSES)
@FEWER_EXAMPLES
@given(call=script_calls())
def test_script_modules_are_replicated(target, baselines, topology, kind, call):
    call = replace(call, network=replace(call.network, kind=kind))
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.script.python-child")
@pytest.mark.parametrize("parent", [_identity, nn.Sequential], ids=["bare", "in-sequential"])
@pytest.mark.parametrize("count", [0, 2], ids="devices={}".format)
def test_a_python_child_of_a_script_module_is_refused(target, topology, parent, count):
    def replicate_unfinished(module):
        # A script module has a Python child only during its constructor.
        with pytest.raises(RuntimeError) as caught:
            target.replicate.replicate(parent(module), topology.take(count))
        error = error_of("replicate.script.python-child")
        check_error(caught.value, error, topology)

    PartlyBuiltScript(replicate_unfinished)


@clause("replicate.script.without-jit")
def test_without_torchscript_a_module_with_a_python_child_is_replicated(target, topology):
    program = WITHOUT_JIT.format(topology.accelerator, target.name, target.mapping)
    environment = {**os.environ, "PYTORCH_JIT": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["2"], done.stderr  # A back end may print more.
