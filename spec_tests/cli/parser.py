"""A parser of arguments whose errors name similar words and the place of pytest's options."""

import argparse
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NoReturn

__all__ = ["Parser"]

#: The error of argparse for a word that is none of the choices.
_UNKNOWN_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser with commands. Its errors about unknown words have a hint."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the parsed arguments, or exit with status 2 if one of them is not valid."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            words = " ".join(unknown)
            option = unknown[0].partition("=")[0]
            hint = _did_you_mean(option, [f"--{name.replace('_', '-')}" for name in vars(options)])
            if not hint and options.command == "run" and option.startswith("-"):
                place = f"{self.prog} run {options.target} -- {words}"
                hint = f"; options of pytest go after --: {place}"
            self.error(f"unrecognized arguments: {words}{hint}")
        return options

    def error(self, message: str) -> NoReturn:
        """Print the error with a hint, and exit with status 2."""
        choice = _UNKNOWN_CHOICE.search(message)
        hint = _did_you_mean(choice[1], re.findall(r"[\w.-]+", choice[2])) if choice else ""
        super().error(message + hint)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    similar = get_close_matches(word, list(known), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""
