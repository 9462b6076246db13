"""The simulator finds each wrong ordering in the table of programs, and none in right ones."""

import threading

import pytest
import torch

from spec_tests import simulator
from spec_tests.meta_tests.race_programs import ROWS
from spec_tests.meta_tests.race_programs.rows import NUMBERS

pytestmark = pytest.mark.usefixtures("sim")
name_of = "{0.name}".format


def test_the_table_has_forty_programs_at_least():
    assert 2 * len(ROWS) >= 40
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_wrong_program_races(row):
    with simulator.races() as found:
        row.run(False)
    assert found


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_right_program_does_not_race(row):
    with simulator.races() as found:
        assert row.run(True) == NUMBERS
    assert [f"{race}" for race in found] == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.late], ids=name_of)
def test_late_copies_show_what_the_wrong_program_reads(row):
    with simulator.races(late=0) as found:
        assert row.run(False) != NUMBERS
    assert found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_late_copies_are_in_time_for_the_right_program(row, seed):
    with simulator.races(late=seed) as found:
        assert row.run(True) == NUMBERS
    assert not found


def _send_and_sum(start, sums):
    start.wait()
    for _ in range(10_000):
        sent = torch.ones(3, device="sim:1").to("sim:0", non_blocking=True)
        sums.add(sent.sum().item())


def test_late_copies_of_threads_on_one_stream_do_not_wait_for_each_other():
    start, sums = threading.Barrier(3), set()
    threads = [threading.Thread(target=_send_and_sum, args=(start, sums)) for _ in range(3)]
    with simulator.races(late=0) as found:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sums == {3.0}
    assert not found
