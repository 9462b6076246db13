"""The arguments of impl's public functions. Tests of wrong arguments have a case for each."""

from collections.abc import Iterator

from impl_tests.wrong.wrapping import signatures

__all__ = ["public_arguments"]

#: Functions that accept any object, and methods that pass their arguments to a function.
_WITHOUT_CHECKS = {
    "get_a_var",
    "is_namedtuple",
    "DataParallel.gather",
    "DataParallel.parallel_apply",
    "DataParallel.replicate",
    "DataParallel.scatter",
    "DataParallelWithLoss.gather",
}
#: The parts of impl whose functions are not attributes of impl.
_PREFIXES = ("comm.", "functions.", "distributed.")


def public_arguments() -> Iterator[tuple[str, str]]:
    """Yield the name of each public function, such as ``comm.scatter``, with each argument."""
    for wrapped, signature in signatures("impl"):
        full = wrapped.removesuffix(".__init__")
        name = full if full.startswith(_PREFIXES) else full.partition(".")[2]
        if name in _WITHOUT_CHECKS or "._" in full or full.endswith(".backward"):
            continue
        for each in signature.parameters.values():
            if each.name != "self" and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                yield name, each.name
