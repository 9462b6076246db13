"""The benchmarks import no other folder of the checkout than impl and the suite."""

from pathlib import Path

from spec_tests.tests.python_source import imported_modules

BENCH = Path(__file__).parents[1]
#: Folders of the checkout that an installation lacks.
FORBIDDEN = ("impl_tests", "reports", "docs")


def test_benchmarks_import_no_folder_that_an_installation_lacks():
    names = {(path.name, name) for path in BENCH.rglob("*.py") for name in imported_modules(path)}
    assert {(file, name) for file, name in names if name.split(".")[0] in FORBIDDEN} == set()
