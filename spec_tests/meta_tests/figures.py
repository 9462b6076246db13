"""The house in figures: ``python -m spec_tests.meta_tests.figures`` prints sizes and arrows.

Python alone is counted; a function's lines are those of its body without the docstring.
"""

import io
import tokenize
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from spec_tests.meta_tests.import_order import against_the_arrows, files_of
from spec_tests.meta_tests.python_source import function_lengths

FOLDERS = ("impl", "impl_tests", "spec_tests", "bench", "reports")


def comments_in(path: Path) -> int:
    """The lines of a file that hold a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def row(folder: str, paths: Sequence[Path]) -> str:
    """One folder's figures."""
    files = [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]
    functions = [lines for path in paths for _, lines in function_lengths(path)]
    share = 100 * sum(map(comments_in, paths)) / sum(files)
    return (
        f"{folder:<12}{len(files):>6}{median(files):>8.0f}{max(files):>6}"
        f"{len(functions):>11}{median(functions):>8.0f}{max(functions):>6}{share:>10.1f}"
    )


def main() -> None:
    """Print a row a folder, then the imports that go against the arrows."""
    head = f"{'files':>6}{'median':>8}{'most':>6}{'functions':>11}{'median':>8}{'most':>6}"
    print(f"{'lines':<12}{head}{'comments':>10}  (a hundred lines)")
    for folder in FOLDERS:
        print(row(folder, files_of(folder)))
    wrong = [
        f"{path}: {room}"
        for path in files_of("spec_tests")
        for room in sorted(against_the_arrows(path))
    ]
    print("imports against the arrows:", *(wrong or ["none"]))


if __name__ == "__main__":
    main()
