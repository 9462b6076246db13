"""The kinds of perturbations: ways in which the behaviour of a call is made wrong."""

from typing import Any

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds import (
    arguments,
    containers,
    effects,
    errors,
    given_modules,
    gradients,
    leftovers,
    memory,
    module_functions,
    module_threads,
    modules,
    replica_tensors,
    replicas,
    results,
    rewrapped,
    surroundings,
    tensor_functions,
    wrappers,
)
from impl_tests.wrong.kinds.registry import Around

__all__ = ["KINDS", "OTHER_SIGNATURE", "PARAMETERS", "perturbed"]

#: The kind that changes no call: `wrapping` hides the signature of the function.
OTHER_SIGNATURE = "other-signature"

#: The kinds by name. Each makes a call and changes its behaviour.
KINDS: dict[str, Around] = {
    **results.KINDS,
    **memory.KINDS,
    **containers.KINDS,
    **effects.KINDS,
    **gradients.KINDS,
    **errors.KINDS,
    **arguments.KINDS,
    **surroundings.KINDS,
    **leftovers.KINDS,
    **modules.KINDS,
    **module_threads.KINDS,
    **given_modules.KINDS,
    **replicas.KINDS,
    **replica_tensors.KINDS,
    **module_functions.KINDS,
    **tensor_functions.KINDS,
    **rewrapped.KINDS,
    **wrappers.KINDS,
    OTHER_SIGNATURE: Call.run,
}
#: The kinds that change one argument, which is named after a colon.
PARAMETERS = arguments.PARAMETERS


def perturbed(kind: str, call: Call) -> Any:
    """Make a call with behaviour that is wrong in one way; return the result."""
    name, _, argument = kind.partition(":")
    if not argument:
        return KINDS[name](call)
    if argument not in call.arguments:
        return call.run()
    return PARAMETERS[name](call, argument)
