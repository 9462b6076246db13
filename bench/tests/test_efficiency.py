"""`bench.efficiency` divides the time of the module alone by the time of all replicas."""

from bench.efficiency import print_table
from bench.tests.samples import make_benchmark_run


def test_efficiency_counts_the_replicas_of_each_benchmark(capsys):
    times = {"one device": 8.0, "reference": 5.0, "impl": 4.0}
    run = make_benchmark_run({"training": times, "cpu": {"one device": 4.0, "impl": 2.0}})
    for each in run["benchmarks"]:
        count = 2 if each["group"] == "training" else 1
        each["extra_info"]["devices"] = ["sim:0", "sim:1"][:count]
    print_table(run)
    assert capsys.readouterr().out.splitlines()[3:] == [
        "| training | 0.80 | 1.00 |",
        "| cpu | - | 2.00 |",
    ]


def test_groups_without_the_module_alone_have_no_row(capsys):
    print_table(make_benchmark_run())
    assert "work" not in capsys.readouterr().out
