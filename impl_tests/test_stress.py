"""The stress test passes on impl, and detects inserted races and growth."""

import subprocess
import sys
from pathlib import Path

import pytest

from impl_tests.mutants import IMPL
from impl_tests.stress import races
from impl_tests.stress.rounds import WARM_UP, Snapshot, find_growth
from spec_tests.harness.environment import interpreter
from spec_tests.harness.environment.topology import not_run

ROOT = Path(__file__).resolve().parents[1]
RACES = races.load()
STEADY = Snapshot(threads=4, objects=1000, device_bytes=480, resident_mib=300.0)


def stress(*arguments):
    command = [sys.executable, "-m", "impl_tests.stress", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_short_run_passes():
    done = stress("--minutes", "0.1", "--threads", "2-6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no wrong result, nothing left over, no growth" in done.stdout


@pytest.mark.parametrize("name", RACES)
def test_the_replaced_passage_occurs_once(name):
    race = RACES[name]
    race.apply((IMPL / race.file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found(name):
    if interpreter.is_gil_enabled():
        not_run("the interpreter lock hides most races: run tox -e free-threaded")
    done = stress("--minutes", "4", "--threads", "4-8", "--race", name)
    assert done.returncode != 0, done.stdout


@pytest.mark.parametrize("name", ["objects", "device_bytes", "threads", "resident_mib"])
def test_growth_is_found(name):
    snapshots = [STEADY] * (WARM_UP + 2)
    snapshots += [STEADY._replace(**{name: getattr(STEADY, name) * 2})] * 2
    assert [text.split()[1] for text in find_growth(snapshots)] == [name]


def test_fluctuation_is_not_growth():
    peak = STEADY._replace(objects=3000, resident_mib=900.0)
    assert not [*find_growth([STEADY, peak] * 9)]
