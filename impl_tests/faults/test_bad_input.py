"""Wrong arguments: a few of their outcomes, and a wrong impl."""

from impl_tests.public_arguments import public_arguments
from spec_tests.harness.environment.scripts import run_program

#: Prints the name of each function with its arguments, some of which are tensors on devices.
LIST_OF_ARGUMENTS = """
from impl_tests.faults.cases import CASES
from impl_tests.faults.cases_of_impl import CASES_OF_IMPL
from impl_tests.faults.calls import prepare

prepare("impl")
for name, case in [*CASES.items(), *CASES_OF_IMPL.items()]:
    print(name.split(" ")[0], *case.arguments())
"""
#: Prints the verdicts on a function that is wrong for three values, and right for a fourth one.
WRONG = """
import os
import torch
from impl_tests.faults.bad_input import try_values
from impl_tests.faults.calls import prepare

target = prepare("impl")
original = target.comm.reduce_add

def reduce_add(inputs, destination):
    if inputs is None:
        torch.set_grad_enabled(False)
        raise TypeError("inputs")
    if inputs == 1:
        raise TypeError("a wrong destination")
    if destination == 1:
        os.abort()
    return original(inputs, destination)

target.comm.reduce_add = reduce_add
for each in try_values(target, ["comm.reduce_add"], ["int 1", "float nan", "None"], 1):
    print(each.argument, each.value, each.verdict)
"""


def test_every_argument_of_every_public_function_has_a_case():
    completed = run_program(LIST_OF_ARGUMENTS)
    assert completed.returncode == 0, completed.stderr
    lines = map(str.split, completed.stdout.splitlines())
    tried = {(name, argument) for name, *arguments in lines for argument in arguments}
    assert set(public_arguments()) - tried == set()


def test_errors_that_name_no_argument_states_and_crashes_are_found():
    completed = run_program(WRONG)
    assert completed.returncode == 0, completed.stderr
    assert [line.strip() for line in completed.stdout.splitlines()] == [
        "comm.reduce_add(inputs) int 1 no name",
        "comm.reduce_add(inputs) float nan refused",
        "comm.reduce_add(inputs) None state left",
        "comm.reduce_add(destination)  crash",
    ]


def test_errors_of_all_functions_name_the_argument():
    options = ["object()", "mock", "closed generator"]
    completed = run_program(
        f"""
from impl_tests.faults.bad_input import BAD, try_values
from impl_tests.faults.calls import prepare
from impl_tests.faults.cases import CASES
from impl_tests.faults.cases_of_impl import CASES_OF_IMPL

for each in try_values(prepare("impl"), [*CASES, *CASES_OF_IMPL], {options}, 2):
    if each.verdict in BAD:
        print(each)
"""
    )
    assert completed.stdout == "", completed.stderr
    assert completed.returncode == 0, completed.stderr
