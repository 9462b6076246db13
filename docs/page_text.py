"""The text of a page, with parts of other files of the repository in it.

A page includes text by a link on a line of its own, so that each fact is written in one file, and
a reader of the repository finds it:

    [Install](../README.md#install "include: Install; Use")         two sections of a file
    [Differences](../DIVERGENCES.md "include")                      a whole file without its title
    [comm](../../spec_tests/SPECIFICATION.md#comm "clauses: comm")  the clauses of a chapter, each
                                                                    with an anchor

`write_pages` writes the pages that consist of one such link. Git ignores them.

Pages and included text link to files of the repository. On the site these links lead to pages. A
link to a file that is on no page leads to the file on GitHub, and a link to a published run leads
to its page. The code `impl.hold` links the API reference.
"""

import operator
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import impl
from spec_tests.machine import clauses, register
from spec_tests.reporting import runs

__all__ = ["FENCE", "expand", "write_pages"]

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_GITHUB = "https://github.com/torch-parallel-spec/torch-parallel-spec/blob/main"
#: The start or the end of a code block.
FENCE = re.compile(r"^ *(`{3,}|~{3,})")
_INCLUSION = re.compile(r'^\[.*?\]\((\S*) "(include|clauses)(?:: (.*))?"\)$', re.M)
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]*)(#[^)\s]*)?\)")
_CLAUSE = re.compile(r"`(divergences\.[\w.-]+)`")
#: A public name of impl, without arguments.
_NAME = re.compile(rf"(?<![`\[])`(impl\.(?:{'|'.join(impl.__all__)})(?:\.\w+)?)`(?!`)")

#: The pages that only include a file: the title and the file of each page.
_WHOLE_FILES = {
    "changelog": ("Changelog", "CHANGELOG.md"),
    "differences": ("Differences from torch.nn.parallel", "DIVERGENCES.md"),
    "validate/back_ends": ("Check a new accelerator back end", "spec_tests/BACK_ENDS.md"),
    "validate/changes": ("What changed in torch.nn.parallel", "reports/others/CHANGES.md"),
    "validate/commands": ("The command parallel-conformance", "spec_tests/cli/README.md"),
    "validate/others": ("Other implementations", "reports/others/README.md"),
    "validate/registers": (
        "Registers: known divergences and missing names",
        "spec_tests/registers/README.md",
    ),
    "validate/simulator": ("The simulated accelerator", "spec_tests/simulator/README.md"),
    "validate/suite": ("The conformance suite", "spec_tests/README.md"),
}


def write_pages() -> None:
    """Write the pages that only include a file, or the clauses of a chapter."""
    for page, (title, source) in _WHOLE_FILES.items():
        _write_page(page, title, f'[{source}]({{root}}{source} "include")')
    for chapter in clauses.CHAPTERS:
        link = f'[{chapter}]({{root}}spec_tests/SPECIFICATION.md#{chapter} "clauses: {chapter}")'
        terms = "[Terms](index.md#terms), such as *chunk*, *bucket* and *refused*."
        _write_page(f"specification/{chapter}", chapter, f"{terms}\n\n{link}")


def _write_page(page: str, title: str, link: str) -> None:
    root = "../" * len(Path(page).parts)
    text = f"# {title}\n\n{link.format(root=root)}\n"
    path = DOCS / f"{page}.md"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def expand(page: Path) -> str:
    """Return the text of ``page`` with all included text."""
    text = page.read_text(encoding="utf-8")
    parts, end = [], 0
    for found in _INCLUSION.finditer(text):
        parts.append(_rewrite_links(text[end : found.start()], page, page))
        if found[2] == "clauses":
            parts.append("\n".join(_list_clauses(found[3])))
        else:
            source = (page.parent / found[1].partition("#")[0]).resolve()
            parts.append(_include(source, found[3], page))
        end = found.end()
    return "".join([*parts, _rewrite_links(text[end:], page, page)])


def _include(source: Path, titles: str | None, page: Path) -> str:
    sections = dict(_split_sections(source.read_text(encoding="utf-8")))
    wanted = [title.strip() for title in titles.split(";")] if titles else list(sections)
    text = "".join(sections[title] for title in wanted)
    if len(wanted) == 1:
        text = text.partition("\n")[2]  # The page has a title of its own for a single section.
    return _rewrite_links(text, source, page)


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section. The text before the first one has no title."""
    title, lines, is_code = "", list[str](), False
    for line in text.splitlines(keepends=True):
        is_code ^= FENCE.match(line) is not None
        if line.startswith("## ") and not is_code:
            yield title, "".join(lines)
            title, lines = line[3:].strip(), []
        if not line.startswith("# ") or is_code:
            lines.append(line)
    yield title, "".join(lines)


def _rewrite_links(text: str, source: Path, page: Path) -> str:
    """Make the links of ``source`` lead to pages of the site, outside of code blocks."""
    lines, is_code = [], False
    for line in text.splitlines(keepends=True):
        is_code ^= FENCE.match(line) is not None
        if not is_code:
            line = _LINK.sub(lambda found: _link(found, source, page), line)
            line = _CLAUSE.sub(lambda found: _clause_link(found[1]), line)
            line = _NAME.sub(lambda found: _api_link(found[1]), line)
        lines.append(line)
    return "".join(lines)


def _link(found: re.Match[str], source: Path, page: Path) -> str:
    label, target, fragment = found[1], found[2], found[3] or ""
    if not target:
        return found[0]
    path = (source.parent / target).resolve().relative_to(ROOT).as_posix()
    if found[0].startswith("!"):  # an image
        return f"![{label}]({_relative(f'../{path}', page)})"
    chapter = f"specification/{fragment[1:]}.md"
    if path == "spec_tests/SPECIFICATION.md" and (ROOT / "docs" / chapter).exists():
        return f"[{label}]({_relative(chapter, page)})"
    including = _including_pages()
    if path in including or (path.startswith("docs/") and path.endswith(".md")):
        target = including.get(path, path.removeprefix("docs/"))
        return f"[{label}]({_relative(target, page)}{fragment})"
    if path.startswith("reports/results/"):  # Sphinx does not know the page as a document
        address = f"results/runs/{runs.name_of(Path(path))}.html"
        return f'<a href="{_relative(address, page)}">{label}</a>'
    return f"[{label}]({_GITHUB}/{path}{fragment})"


def _clause_link(clause: str) -> str:
    if clause not in clauses.load():
        return f"`{clause}`"
    return f"[`{clause}`](#{clause})"


def _api_link(name: str) -> str:
    _, *names = name.split(".")
    try:
        member: object = operator.attrgetter(".".join(names))(impl)
    except AttributeError:
        return f"`{name}`"
    role = "class" if isinstance(member, type) else "func" if len(names) == 1 else "meth"
    return f"{{{role}}}`{name}`"


@cache
def _including_pages() -> dict[str, str]:
    """Return, for each file of the repository that a page includes, the page."""
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        for link in _INCLUSION.finditer(page.read_text(encoding="utf-8")):
            if link[2] == "include":
                source = (page.parent / link[1].partition("#")[0]).resolve()
                found[source.relative_to(ROOT).as_posix()] = page.relative_to(DOCS).as_posix()
    return found


def _relative(target: str, page: Path) -> str:
    return Path(os.path.relpath(DOCS / target, page.parent)).as_posix()


def _list_clauses(chapter: str) -> Iterator[str]:
    """Yield the lines of a chapter of the specification, with an anchor for each clause."""
    violated = register.violated_by_a_release()
    known = [each for each in clauses.load().values() if each.chapter == chapter]
    for part, members in groupby(known, key=_part):
        yield f"## {part}\n"
        for clause in members:
            links = [each for each in (clause.source, *clause.seen) if each.startswith("http")]
            source = "".join(f", [source]({each})" for each in links)
            yield f"({clause.id})="
            since = f", since {clause.since}" if clause.since else ""
            remark = f"\\\n{register.VIOLATED}" if clause.id in violated else ""
            errors = "".join(f"\\\nraises `{error}`" for error in clause.raises)
            about = f"{clause.basis}{source}{since}"
            yield f"`{clause.id}`\\\n{_escape(clause.statement)} *{about}*{remark}{errors}\n"


def _part(clause: clauses.Clause) -> str:
    words = clause.id.split(".")
    return ".".join(words[:2]) if len(words) > 2 else words[0]


def _escape(sentence: str) -> str:
    """Escape the characters that Markdown would read as markup, except in code."""
    parts = sentence.split("`")
    parts[::2] = [re.sub(r"([*_\[\]<>|])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts) + "."
