"""`.ci/releases.json` agrees with the metadata of the package and with the published runs."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from reports.publishing.publish import REPORTS
from spec_tests.machine import clauses, register
from spec_tests.reporting import runs

RESULTS = REPORTS / "results"
ROOT = Path(__file__).resolve().parents[2]
RELEASES = json.loads((ROOT / ".ci/releases.json").read_text(encoding="utf-8"))
TORCH, PYTHON = RELEASES["torch"], RELEASES["python"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_names_every_release_of_python_and_requires_the_first():
    prefix = "Programming Language :: Python :: 3."
    named = [text for text in PROJECT["classifiers"] if text.startswith(prefix)]
    releases = sorted(PYTHON["gate"] + PYTHON["others"])
    assert named == [f"Programming Language :: Python :: {release}" for release in releases]
    assert PROJECT["requires-python"] == f">={releases[0]}"


def test_the_package_requires_the_oldest_release_of_pytorch():
    oldest = TORCH["older"][0]
    assert PROJECT["dependencies"] == [f"torch>={oldest.removesuffix('.0')}"]


def test_the_readme_names_the_releases():
    python = sorted(PYTHON["gate"] + PYTHON["others"])
    torch = [release.rpartition(".")[0] for release in TORCH["older"] + TORCH["gate"]]
    named = f"PyTorch {torch[0]} to {torch[-1]}, Python {python[0]} to {python[-1]}"
    assert named in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("release", TORCH["gate"])
def test_each_release_of_the_gate_has_a_published_run_of_impl(release):
    assert (RESULTS / "impl" / f"torch-{release}_sim.json").is_file()


@pytest.mark.parametrize("release", TORCH["older"] + TORCH["gate"])
def test_each_release_has_a_published_run_of_the_reference(release):
    assert (RESULTS / "torch.nn.parallel" / f"torch-{release}_sim.json").is_file()


@pytest.mark.parametrize("release", TORCH["older"] + TORCH["gate"])
def test_the_register_names_the_clauses_that_torch_nn_parallel_violates(release):
    _, evidence = runs.read(RESULTS / "torch.nn.parallel" / f"torch-{release}_sim.json")
    violated = {name for name, each in evidence.items() if each.verdict in ("fail", "known")}
    assert violated.intersection(clauses.load()) <= register.violated_by_reference(release)


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.stem
)
def test_no_workflow_names_a_release_of_pytorch(file):
    settings = re.sub("#.*", "", file.read_text(encoding="utf-8"))
    assert not any(release in settings for release in TORCH["older"] + TORCH["gate"])
