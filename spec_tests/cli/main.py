"""The arguments of ``parallel-conformance``, and where they lead.

What needs the extra ``suite`` is imported by the command that needs it, so that ``doctor`` can
name what is missing.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spec_tests.cli import doctor

EXIT_STATUS = """\
what follows -- goes to pytest: parallel-conformance run mypackage -- -n 2

exit status of run:
  0  every clause passes, is known to differ or was not run
  1  a clause fails, or something that the suite needs is not installed
  2  interrupted, or wrong arguments
  3  the machine garbles copies, or the suite itself is broken: nothing can be judged
  4  wrong options, no such target, no such accelerator; or the simulator cannot be built
  5  no test was selected
  6  no clause fails, but the target lacks names that its register does not declare
doctor: 1 if something is missing; clauses: 1 if none has that name; draft: 4 without file;
report: 1 if something is missing, 4 if a file is broken or no file of verdicts
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    own, rest = _split(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(own)
    if rest and options.command != "run":
        _parser().error("only run has arguments for pytest")
    options.pytest = rest
    missing = doctor.missing_modules()
    if options.command != "doctor" and missing:
        print(f"missing: {', '.join(missing)}\n{doctor.EXTRA}", file=sys.stderr)
        return 1
    return _COMMANDS[options.command](options)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before ``--``, and what after it: pytest's."""
    if "--" not in arguments:
        return arguments, ()
    index = arguments.index("--")
    return arguments[:index], arguments[index + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parallel-conformance",
        description="Judge an implementation of torch.nn.parallel.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="judge a target"))
    clauses = commands.add_parser("clauses", help="print the specification")
    clauses.add_argument("name", nargs="*", help="clauses or chapters (default: all)")
    _add_report(commands.add_parser("report", help="make pages of runs"))
    draft = commands.add_parser("draft", help="print a register of what failed, to start from")
    draft.add_argument("file", type=Path, help="what `run --verdicts FILE` wrote")
    commands.add_parser("doctor", help="tell what this machine lacks, and the remedy")
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="importable package, such as torch.nn.parallel")
    parser.add_argument("--accelerator", default="auto", metavar="TYPE", help="auto, sim, cuda …")
    parser.add_argument("--device-ids", metavar="0,1,...", help="ordinals to use; may repeat")
    parser.add_argument(
        "--clause", action="append", default=[], metavar="NAME", help="a clause or chapter only"
    )
    parser.add_argument(
        "--target-map",
        action="append",
        default=[],
        metavar="NAME=PLACE",
        help="where it has a part: data_parallel.DataParallel=package.module:Name, or a TOML file",
    )
    parser.add_argument(
        "--reference",
        choices=["torch.nn.parallel", "none"],
        help="none: judge by laws, oracles and pinned texts alone; torch.nn.parallel is not used",
    )
    parser.add_argument("--divergences", metavar="FILE", help="the target's known differences")
    parser.add_argument("--verdicts", metavar="FILE", help="write every test's verdict there")
    parser.add_argument("-v", "--verbose", action="store_true", help="what pytest itself prints")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the table of saved verdicts, and make pages of all runs."
    parser.add_argument("file", type=Path, nargs="*", help="what `run --verdicts FILE` wrote")
    parser.add_argument("--reports", type=Path, metavar="FOLDER", help="published runs: reports")
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="the pages: reports/site or site"
    )


def _run(options: argparse.Namespace) -> int:
    from spec_tests.cli import run

    return run.run(options)


def _clauses(options: argparse.Namespace) -> int:
    from spec_tests.harness.conformance import clauses

    names = options.name
    known = clauses.load()
    found = {
        name: each for name, each in known.items() if not names or any(map(each.is_below, names))
    }
    print(clauses.as_text(found))
    return 0 if found else 1


def _report(options: argparse.Namespace) -> int:
    from spec_tests.cli import report

    return report.report(options)


def _draft(options: argparse.Namespace) -> int:
    from spec_tests.cli.draft import draft
    from spec_tests.harness.conformance import verdicts

    if not options.file.is_file():
        print(f"{options.file}: no such file", file=sys.stderr)
        return 4
    print(draft(verdicts.read(options.file)))
    return 0


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "clauses": _clauses,
    "report": _report,
    "draft": _draft,
    "doctor": lambda options: doctor.main(),
}

if __name__ == "__main__":
    sys.exit(main())
