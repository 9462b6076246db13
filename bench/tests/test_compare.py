"""`bench.compare` compares the ratios of a saved run with those of another run."""

import json
import signal
import subprocess
import sys

import pytest

from bench import benchmark_files, compare
from bench.compare import BELOW, FREE, OK, UNSURE, print_table
from bench.ratios import Ratio
from bench.tests.samples import make_benchmark_run


def test_rows_are_judged_by_the_ratios_before():
    ratios = {"slow": 1.9, "fast": 2.0, "new": 1.0}
    run = make_benchmark_run({row: {"reference": ratios[row], "impl": 1.0} for row in ratios})
    for each in run["benchmarks"]:
        if each["group"] == "fast":
            each["extra_info"]["peak_bytes"] = (
                100 if each["extra_info"]["library"] == "impl" else 300
            )
    before = {"slow": 2.4, "fast": 2.3, "fast (bytes)": 1.5}
    assert print_table(run, before) == {"slow": BELOW, "fast": OK, "fast (bytes)": OK, "new": FREE}
    assert print_table(run, before, 1.0)["slow"] == OK
    assert {*print_table(run).values()} == {FREE}


@pytest.mark.parametrize(
    ("quartiles", "verdict"),
    [((1.0, 1.4), BELOW), ((1.0, 1.6), UNSURE), ((1.4, 2.0), UNSURE), ((1.5, 2.0), OK)],
)
def test_a_row_with_quartiles_on_both_sides_of_its_floor_is_unsure(quartiles, verdict):
    low, high = quartiles
    ratio = Ratio("work", value=(low + high) / 2, low=low, high=high)
    assert compare._judge(ratio, 1.5) == verdict


def test_run_without_both_libraries_raises():
    with pytest.raises(ValueError, match="nothing to compare"):
        print_table({"benchmarks": []})


@pytest.fixture
def save(tmp_path):
    """Return a function that saves a run whose rows have a ratio."""

    def save_run(name, ratio, *rows, **machine):
        path, times = tmp_path / name, {"reference": ratio, "impl": 1.0}
        groups = dict.fromkeys(rows or ["work"], times)
        path.write_text(json.dumps(make_benchmark_run(groups, **machine)))
        return path

    return save_run


@pytest.mark.parametrize(
    ("ratio", "change", "status"), [(1.8, "-10%", 0), (1.5, "-25%", 1)], ids="ratio={}".format
)
@pytest.mark.parametrize("is_published", [False, True])
def test_ratio_may_fall_to_85_percent_of_the_ratio_in_the_run_before(
    save, capsys, is_published, ratio, change, status
):
    new, old = save("new.json", ratio), save("old.json", 2.0)
    if is_published:
        runs = benchmark_files.combine([save("a.json", 1.0), old, save("b.json", 3.0)])
        old.write_text(benchmark_files.publish({}, runs))
    assert compare.main([str(new), "--before", str(old)]) == status
    printed = capsys.readouterr().out.splitlines()
    assert (printed[1].split()[0], printed[1].split()[-3:-1]) == ("work", ["2.00", change])
    assert "judged 1 of 1 rows" in printed


def test_a_floor_is_at_most_1_on_another_machine(save, capsys):
    new, old = save("new.json", 1.1, threads=2), save("old.json", 2.0)
    assert compare.main([str(new), "--before", str(old)]) == 0
    assert "was measured on another machine" in capsys.readouterr().out


def test_the_status_is_3_if_the_run_before_lacks_all_rows(save, capsys):
    new, old = save("new.json", 2.0), save("old.json", 2.0, "other")
    assert compare.main([str(new), "--before", str(old)]) == compare.NOTHING_JUDGED
    assert "judged 0 of 1 rows" in capsys.readouterr().out


def test_a_closed_pipe_ends_it_quietly(save):
    command = [sys.executable, "-u", "-m", "bench.compare", save("run.json", 2.0)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    with process:
        assert process.stderr.read() == ""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize(("count", "end"), [(1, "0"), (5, "3, 4"), (6, "3, 4, ...")])
def test_rows_that_only_the_run_before_has_are_counted_and_named(save, capsys, count, end):
    new, old = save("new.json", 2.0), save("old.json", 2.0, "work", *map(str, range(count)))
    assert compare.main([str(new), "--before", str(old)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"only in {old}: {count} row(s): 0")
    assert last.endswith(end)
    assert compare.main([str(old), "--before", str(new)]) == 0
    assert "only in" not in capsys.readouterr().out
