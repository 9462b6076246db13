"""The command ``doctor``: requirements that are missing, and their remedies."""

import re
import sys

import pytest

from spec_tests.cli import doctor
from spec_tests.cli.main import main


def test_doctor_finds_nothing_missing_in_the_test_environment(capsys):
    assert main(["doctor"]) == 0
    assert "MISSING" not in capsys.readouterr().out


def test_doctor_names_missing_modules_and_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "PACKAGES", ("no_such_name", *doctor.PACKAGES))
    assert main(["doctor"]) == 1
    assert main(["run", "impl"]) == 1
    done = capsys.readouterr()
    assert "MISSING modules     no_such_name; remedy: pip install" in done.out
    assert "missing: no_such_name\nremedy: pip install" in done.err


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("CXX", "no-such-c++", "install g++"),
        ("TORCH_EXTENSIONS_DIR", "/dev/null/below", "set TORCH_EXTENSIONS_DIR to a writable"),
    ],
)
def test_doctor_names_what_the_simulator_lacks(monkeypatch, tmp_path, capsys, name, value, remedy):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    (line,) = [line for line in _doctor_output(capsys) if line.startswith("MISSING")]
    assert line.split()[1] == "simulator"
    assert remedy in line


@pytest.mark.parametrize("option", [["--accelerator=sim"], []])
@pytest.mark.parametrize("module", ["../up", "broken", "nosuch"])
def test_doctor_names_the_error_of_a_back_end_in_the_current_folder(
    monkeypatch, tmp_path, capsys, module, option
):
    monkeypatch.setattr("sys.path", [*sys.path])  # doctor adds the folder
    (tmp_path / "broken.py").write_text("raise OSError('no\\nlibrary')")
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *option, "-p", module]) == 1
    line = capsys.readouterr().out.splitlines()[-1]
    assert re.match(rf"-p {module}: \w+Error: .", line)
    assert module != "broken" or line == "-p broken: OSError: no library"


def test_doctor_reports_an_old_torch(monkeypatch, capsys):
    monkeypatch.setattr("torch.__version__", "2.4.1+cpu")
    monkeypatch.delattr("torch.accelerator")
    assert any(
        "MISSING torch" in line and "pip install 'torch>=2.11'" in line
        for line in _doctor_output(capsys)
    )


def _doctor_output(capsys):
    main(["doctor"])
    return capsys.readouterr().out.splitlines()
