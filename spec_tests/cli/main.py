"""The command line of ``parallel-conformance``.

Each command imports its module when it runs, so that ``doctor`` works if the packages of
``[suite]`` are not installed.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import NoReturn

from spec_tests.cli import doctor

#: The exit status after Ctrl-C, and if a file is not valid.
INTERRUPTED, REFUSED = 2, 4
EXIT_STATUS = """\
run passes arguments after -- to pytest: parallel-conformance run mypackage -- -n 2

exit status of run:
  0  each clause passes, is a known divergence, uses a name that is declared as lacking, or was
     not run
  1  a clause fails, or a required package is not installed
  2  interrupted, or an argument of this command is wrong
  3  the suite has an internal error
  4  pytest refuses the value of an option, the target cannot be imported or has no part,
     the accelerator is not found or does not work, or the simulator cannot be built
  5  no test was selected
  6  no clause fails, but the target lacks names that its register does not declare
  7  no clause fails, but --require-decided is given and a clause is not decided
exit status of the other commands:
  doctor   1 if a requirement is not met
  clauses  1 if no clause has that name
  draft    4 if the file does not exist or is not valid
  diff     1 if a clause got worse, 4 if a file is not valid
  report   1 if a required package is not installed, 4 if a file is not valid
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    own_arguments, for_pytest = _split_arguments(sys.argv[1:] if arguments is None else arguments)
    missing = doctor.missing_packages()
    command = next((word for word in own_arguments if not word.startswith("-")), "doctor")
    if missing and command != "doctor":
        print(f"missing: {', '.join(missing)}\n{doctor.EXTRA}", file=sys.stderr)
        return 1
    options, unknown = _make_parser().parse_known_args(own_arguments)
    if unknown:
        text = f"unrecognized arguments: {' '.join(unknown)}"
        hint = "; write arguments for pytest after --" if options.command == "run" else ""
        _make_parser().error(f"{text}{hint}")
    if for_pytest and options.command != "run":
        _make_parser().error("only run accepts arguments for pytest after --")
    options.pytest = for_pytest
    options.ends_process = arguments is None
    if arguments is None:  # This process runs nothing else.
        _end_quietly(options.command)
    if options.command == "doctor":
        return doctor.main(options)
    from spec_tests.machine.input_files import RefusedError  # imports pytest

    try:
        return _run(options)
    except RefusedError as error:
        print(error, file=sys.stderr)
        return REFUSED


def _run(options: argparse.Namespace) -> int:
    if options.command == "clauses":
        return _print_clauses(options)
    if options.command == "run":
        print("importing PyTorch ...", flush=True)
    module = importlib.import_module(f"spec_tests.cli.{options.command}")
    status: int = module.main(options)
    return status


def _end_quietly(command: str) -> None:
    """Print no traceback at Ctrl-C, or if the reader of the output, such as `head`, has ended."""
    signal.signal(signal.SIGINT, _interrupt)
    # During a run, a write to a worker that has ended must not end this process.
    if command != "run" and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _split_arguments(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split the arguments at ``--``: arguments of this command, and arguments for pytest."""
    if "--" not in arguments:
        return arguments, ()
    index = arguments.index("--")
    return arguments[:index], arguments[index + 1 :]


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parallel-conformance",
        description="Check an implementation of torch.nn.parallel against its specification.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run_options(commands.add_parser("run", help="check a target"))
    clauses = commands.add_parser("clauses", help="print the specification")
    clauses.add_argument(
        "name",
        nargs="*",
        help="ids of clauses, their beginnings such as comm, or a text in their ids, statements "
        "or errors such as 'no grad' (default: all)",
    )
    _add_report_options(
        commands.add_parser("report", help="print saved verdicts and write a web page")
    )
    diff = commands.add_parser("diff", help="print the clauses whose verdicts differ in two runs")
    diff.add_argument(
        "old", type=Path, help="the file of `run --verdicts FILE`, or a published run"
    )
    diff.add_argument("new", type=Path, help="the file of a later run")
    diff.add_argument(
        "--to", type=Path, metavar="PAGE", help="also write the clauses as a page in Markdown"
    )
    draft = commands.add_parser("draft", help="print a register with the failures of runs")
    draft.add_argument(
        "file",
        type=Path,
        nargs="*",
        help="files of `run --verdicts FILE`; of a test in several files, the last verdict counts",
    )
    draft.add_argument(
        "--kind",
        choices=("target-bug", "back-end-bug", "suite-bug"),
        default="target-bug",
        help="the kind of the records (default: target-bug)",
    )
    draft.add_argument(
        "--divergences",
        type=Path,
        metavar="REGISTER",
        help="begin with the records of this register, without comments, tests that pass or fail "
        "with other facts, and tests that the suite no longer has",
    )
    _add_doctor_options(
        commands.add_parser("doctor", help="check the requirements of a run on this machine")
    )
    return parser


def _version() -> str:
    try:
        return metadata.version("torch-parallel-spec")
    except metadata.PackageNotFoundError:
        return "a checkout that is not installed"


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="importable package, such as torch.nn.parallel")
    if doctor.missing_packages():
        return
    from spec_tests.machine.options import SHARED  # imports pytest

    for name, arguments in SHARED.items():
        parser.add_argument(name, **arguments)
    _add_module_option(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the output of pytest")
    parser.add_argument(
        "--require-decided",
        action="store_true",
        help="end with status 7 if a clause about the target is not-run or not-offered, also if "
        "the register declares it as lacking",
    )


def _add_doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accelerator",
        metavar="TYPE",
        help="also try each function of this back end that PyTorch, impl or the suite needs",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="FEATURE",
        help="switch off this feature of the simulator first, all: all optional ones, to see what "
        "doctor prints; repeatable; an unknown name prints the names",
    )
    parser.add_argument(
        "--fault",
        metavar="NAME",
        help="imitate this defect of a back end on the simulator; an unknown name prints the "
        "names",
    )
    _add_module_option(parser)


def _add_module_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        action="append",
        default=[],
        dest="modules",
        metavar="MODULE",
        help="import this module first, because it registers the back end; repeatable",
    )


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print saved verdicts by chapter, and write a page that compares runs."
    parser.add_argument(
        "file", type=Path, nargs="*", help="files of `run --verdicts FILE`, or published runs"
    )
    parser.add_argument(
        "--to",
        type=Path,
        metavar="PAGE",
        default=Path("report.html"),
        help="file to write (default: report.html)",
    )
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="also write a summary in Markdown"
    )
    parser.add_argument(
        "--badge", type=Path, metavar="FILE", help="also write the JSON of a badge of shields.io"
    )


def _print_clauses(options: argparse.Namespace) -> int:
    from spec_tests.machine import clauses, register

    specification = clauses.load()
    selected: set[str] = set() if options.name else {*specification}
    for name in options.name:
        found = clauses.matching([name], specification) or [
            clause.id
            for clause in specification.values()
            if name.lower() in " ".join([clause.id, clause.statement, *clause.raises]).lower()
        ]
        if not found:
            print(clauses.describe_unknown(name, specification), file=sys.stderr)
            return 1
        selected.update(found)
    remarks = dict.fromkeys(register.violated_by_reference(), register.VIOLATED)
    shown = [each for name, each in specification.items() if name in selected]
    print(clauses.as_text(shown, remarks))
    return 0
