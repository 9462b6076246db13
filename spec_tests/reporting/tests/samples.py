"""Write sample runs of the suite, as files of verdicts and in the published form."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_tests.failure import Fact, Failure
from spec_tests.reporting import published_runs, runs

#: The metadata of a run.
HEADER = {
    "format": 2,
    "target": "theirs",
    "version": "1.0",
    "torch": "2.12.0+cpu",
    "python": "3.12.1",
    "accelerator": "sim",
    "devices": ["sim:0", "sim:1"],
    "date": "2026-01-02T03:04:05+00:00",
    "command": "parallel-conformance run theirs --accelerator=sim",
    "suite": "1.0+0000000",
}
#: A text that is dangerous in a page or table: HTML with a script, an attribute, a template, TeX,
#: a spreadsheet formula and a control character.
HOSTILE = (
    '=$\\frac{ $</pre></title><script>alert(\'x\')</script>" onfocus="alert(1)" {{ 7 * 7 }} \x07'
)


def write_verdicts(path: Path, found: Mapping[str, str | Failure], **about: Any) -> Path:
    """Write a file of verdicts; return its path.

    Args:
        path: The file.
        found: For each clause id: the verdict of the test of the clause, or its failure.
        about: Fields that are added to the header, or replace its default fields.
    """
    lines = [{"run": {**HEADER, **about}}, *(_verdict_line(*each) for each in found.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _verdict_line(clause: str, found: str | Failure) -> dict[str, Any]:
    test = {"clause": clause, "test": f"spec_tests/test_{clause}.py::test_it"}
    if isinstance(found, Failure):
        return test | {"verdict": "fail", "failure": found.to_json()}
    if found == "pass":
        return test | {"verdict": found}
    if found == "not-run":
        return test | {"verdict": found, "reason": "needs two devices"}
    facts = (Fact("output", "values"),)
    failure = Failure("differs", facts, f"{clause} differs", call=f"call({clause!r})")
    return test | {"verdict": found, "failure": failure.to_json()}


def publish_run(folder: Path, found: Mapping[str, str | Failure], **about: Any) -> Path:
    """Write a published run below the folder of reports; return its path."""
    return publish_file(write_verdicts(folder / "sent.jsonl", found, **about), folder)


def publish_file(file: Path, folder: Path) -> Path:
    """Write the published form of a file of verdicts below ``folder``; return its path."""
    about, found = runs.read(file)
    name = f"torch-{about['torch'].partition('+')[0]}_{about['hardware']}.json"
    path = Path(folder, "results", about["target"], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(published_runs.publish(about, found), encoding="utf-8")
    return path
