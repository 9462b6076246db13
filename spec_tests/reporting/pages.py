"""Render results as HTML: the matrix, the page of a run, and the page of ``report``.

The documentation site shows the matrix and the page of each published run in its theme. The page
of ``report`` shows the same in one file, without other files and without a network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from spec_tests.machine import clauses, input_files
from spec_tests.machine.clauses import Clause
from spec_tests.machine.input_files import RefusedError
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import VERDICTS
from spec_tests.reporting import runs
from spec_tests.reporting.matrix import Matrix
from spec_tests.reporting.runs import Run

HERE = Path(__file__).parent
#: The folder of the style sheet and the script of the filter.
STATIC = HERE / "static"
#: The second line of each page of ``report``. `write_report` replaces only files that have it.
_MARKER = "<!-- made by parallel-conformance report -->"


@dataclass(frozen=True)
class Pages:
    """Renders pages as HTML.

    Args:
        matrix: The clauses and the runs.
        address_of: Returns the address of the page of a run; None if it has none.
        clause_address: Returns the address of a clause in the specification; None if unknown.
    """

    matrix: Matrix
    address_of: Callable[[Run], str | None]
    clause_address: Callable[[Clause], str | None]

    def render(self, template: str, **values: Any) -> str:
        """Return the HTML of a template. ``root`` is the prefix of addresses."""
        values.setdefault("root", "")
        return self._environment.get_template(f"{template}.html").render(values)

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,  # the text of a failing call may contain HTML
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals.update(
            matrix=self.matrix,
            verdicts=VERDICTS,
            address_of=self.address_of,
            clause_address=self.clause_address,
            keys={run.name: place for place, run in enumerate(self.matrix.columns, 1)},
        )
        return environment


def write_report(files: Sequence[Path], folder: Path | None, page: Path) -> None:
    """Write a page with the runs in ``files``, and a matrix of these and of torch.nn.parallel.

    The matrix has the runs of torch.nn.parallel that are published in ``folder``, on the runs'
    releases of PyTorch; on all releases, if it has none of them.

    Raises:
        input_files.RefusedError: A file is not valid, there is no file, or ``page`` is another
            file or cannot be written.
    """
    if not files:
        raise RefusedError("there is no run to show: name a file of `run --verdicts FILE`")
    if page.is_file() and _MARKER not in input_files.read_text(page)[:99]:
        raise RefusedError(f"{page} is no page of a report; name another file")
    loaded = runs.load(folder, files)
    shown = [run for run in loaded if not run.file]
    reference = [run for run in loaded if run.file and run.about["target"] == REFERENCE]
    releases = {run.release for run in shown}
    columns = shown + ([run for run in reference if run.release in releases] or reference)
    addresses = {run.name: f"#run-{run.name}" for run in columns if not run.file}
    matrix = Matrix(clauses.load(), columns)
    pages = Pages(matrix, lambda run: addresses.get(run.name), lambda clause: None)
    style, script = (
        Markup((STATIC / name).read_text("utf-8")) for name in ("results.css", "filter.js")
    )
    text = pages.render("report", shown=shown, style=style, script=script)
    input_files.write(page, text)
