"""The race detector finds a race in each incorrect race program and in no correct one."""

import threading

import pytest
import torch

from spec_tests import simulator
from spec_tests.simulator.tests.race_programs import PROGRAMS
from spec_tests.simulator.tests.race_programs.program import NUMBERS

pytestmark = pytest.mark.usefixtures("sim")
get_name = "{0.name}".format


@pytest.mark.parametrize("program", PROGRAMS, ids=get_name)
def test_detector_finds_race_in_incorrect_program(program):
    with simulator.races() as found:
        program.run(False)
    assert found


@pytest.mark.parametrize("program", PROGRAMS, ids=get_name)
def test_detector_finds_no_race_in_correct_program(program):
    with simulator.races() as found:
        assert program.run(True) == NUMBERS
    assert [f"{race}" for race in found] == []


@pytest.mark.parametrize("program", [each for each in PROGRAMS if each.late_copies], ids=get_name)
def test_late_copies_change_result_of_incorrect_program(program):
    with simulator.races(late_copies=0) as found:
        assert program.run(False) != NUMBERS
    assert found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("program", PROGRAMS, ids=get_name)
def test_late_copies_keep_result_of_correct_program(program, seed):
    with simulator.races(late_copies=seed) as found:
        assert program.run(True) == NUMBERS
    assert not found


def _copy_and_sum(start, sums):
    start.wait()
    for _ in range(10_000):
        copied = torch.ones(3, device="sim:1").to("sim:0", non_blocking=True)
        sums.add(copied.sum().item())


def test_late_copies_of_threads_on_one_stream_do_not_race():
    start, sums = threading.Barrier(3), set()
    threads = [threading.Thread(target=_copy_and_sum, args=(start, sums)) for _ in range(3)]
    with simulator.races(late_copies=0) as found:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sums == {3.0}
    assert not found
