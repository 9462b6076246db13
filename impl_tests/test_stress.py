"""impl_tests.stress: a short run finds nothing, and what is wrong on purpose is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from impl_tests.mutants import IMPL
from impl_tests.stress import races
from impl_tests.stress.rounds import WARM_UP, Look, grown
from spec_tests.harness.environment import interpreter
from spec_tests.harness.environment.topology import not_run

ROOT = Path(__file__).resolve().parents[1]
RACES = races.load()
STILL = Look(threads=4, objects=1000, device_bytes=480, resident_mib=300.0)


def stress(*arguments):
    command = [sys.executable, "-m", "impl_tests.stress", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_short_run_finds_nothing():
    done = stress("--minutes", "0.1", "--threads", "2-6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no wrong result, nothing left over, no growth" in done.stdout


@pytest.mark.parametrize("name", RACES)
def test_the_passage_occurs_once(name):
    race = RACES[name]
    race.apply((IMPL / race.file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found(name):
    if interpreter.is_gil_enabled():
        not_run("the interpreter's lock hides most races: tox -e free-threaded")
    done = stress("--minutes", "4", "--threads", "4-8", "--race", name)
    assert done.returncode != 0, done.stdout


@pytest.mark.parametrize("name", ["objects", "device_bytes", "threads", "resident_mib"])
def test_growth_is_told(name):
    looks = [STILL] * (WARM_UP + 2)
    looks += [STILL._replace(**{name: getattr(STILL, name) * 2})] * 2
    assert [text.split()[1] for text in grown(looks)] == [name]


def test_what_goes_up_and_down_is_no_growth():
    other = STILL._replace(objects=3000, resident_mib=900.0)
    assert not [*grown([STILL, other] * 9)]
