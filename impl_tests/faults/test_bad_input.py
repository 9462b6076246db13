"""Wrong arguments: the outcomes, and a process that dies."""

import pytest

from impl_tests.faults.cases import CASES
from impl_tests.faults.cases_of_impl import CASES_OF_IMPL
from impl_tests.faults.wrong_values import VALUES
from impl_tests.public_arguments import public_arguments
from impl_tests.samples import run_python

PROGRAM = """
from impl_tests.faults.bad_input import try_values
from impl_tests.faults.cases import CASES
from impl_tests.faults.calls import prepare
import os

target = prepare("impl")
{change}
for each in try_values(target, ["comm.reduce_add"], ["None", "int 1", "float nan"], 1):
    print(each.argument, each.value, each.verdict)
"""
#: Prints the name of each function with its arguments, some of which are tensors on devices.
LIST_OF_ARGUMENTS = """
from impl_tests.faults.cases import CASES
from impl_tests.faults.cases_of_impl import CASES_OF_IMPL
from impl_tests.faults.calls import prepare

prepare("impl")
for name, case in [*CASES.items(), *CASES_OF_IMPL.items()]:
    print(name.split(" ")[0], *case.arguments())
"""


def run_program(change):
    completed = run_python(PROGRAM.format(change=change))
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of layouts that it may change.
def test_there_are_at_least_200_wrong_values_and_each_can_be_made():
    assert len(VALUES) >= 200
    for make in VALUES.values():
        make()


def test_outcomes_name_argument_value_and_verdict():
    assert run_program("") == [
        "comm.reduce_add(inputs) None refused",
        "comm.reduce_add(inputs) int 1 refused",
        "comm.reduce_add(inputs) float nan refused",
        "comm.reduce_add(destination) None accepted",
        "comm.reduce_add(destination) int 1 accepted",
        "comm.reduce_add(destination) float nan refused",
    ]


def test_a_value_that_ends_the_process_is_a_crash_and_the_others_are_tried():
    change = """
reduce_add = target.comm.reduce_add
target.comm.reduce_add = lambda inputs, destination: (
    os.abort() if inputs == 1 else reduce_add(inputs, destination)
)
"""
    verdicts = {line.rsplit(" ", 1)[0]: line.rsplit(" ", 1)[1] for line in run_program(change)}
    assert verdicts["comm.reduce_add(inputs) int 1"] == "crash"
    assert verdicts["comm.reduce_add(inputs) float nan"] == "refused"


def test_a_state_that_a_refused_call_leaves_is_found():
    change = """
import torch
def reduce_add(inputs, destination):
    if inputs is None:
        torch.set_grad_enabled(False)
        raise TypeError
    return original(inputs, destination)
original, target.comm.reduce_add = target.comm.reduce_add, reduce_add
"""
    assert "comm.reduce_add(inputs) None state left" in run_program(change)


def test_an_error_that_does_not_name_the_argument_is_found():
    change = """
def reduce_add(inputs, destination):
    if inputs is None or destination is None:
        raise TypeError("a wrong destination")
    return original(inputs, destination)
original, target.comm.reduce_add = target.comm.reduce_add, reduce_add
"""
    lines = run_program(change)
    assert "comm.reduce_add(inputs) None no name" in lines
    assert "comm.reduce_add(destination) None refused" in lines


def test_every_argument_of_every_public_function_has_a_case():
    completed = run_python(LIST_OF_ARGUMENTS)
    assert completed.returncode == 0, completed.stderr
    lines = map(str.split, completed.stdout.splitlines())
    tried = {(name, argument) for name, *arguments in lines for argument in arguments}
    assert set(public_arguments()) - tried == set()


def test_errors_of_all_functions_name_the_argument():
    change = f"""
names = {[*CASES, *CASES_OF_IMPL]}
for each in try_values(target, names, ["object()", "mock of Tensor", "closed generator"], 2):
    if each.verdict not in ("refused", "accepted"):
        print("bad", each)
"""
    assert not [line for line in run_program(change) if line.startswith("bad")]
