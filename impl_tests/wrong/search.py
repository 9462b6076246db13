"""Search perturbations that fail a clause: ``python -m impl_tests.wrong --propose CLAUSE``."""

import re
from collections.abc import Iterable, Iterator

from impl_tests.wrong import Perturbation, outcomes
from impl_tests.wrong.call_log import CallLog
from impl_tests.wrong.kinds import (
    KINDS,
    PARAMETERS,
    containers,
    effects,
    errors,
    given_modules,
    gradients,
    leftovers,
    memory,
    module_threads,
    modules,
    replica_tensors,
    replicas,
    results,
    surroundings,
)

__all__ = ["candidates"]

#: Words of a clause -> kinds that probably break it.
_HINTS = {
    r"refuse|raise|error|exception": "accepted other-class text-without-numbers "
    "text-with-other-numbers first-line",
    r"text|names|contains": "text-with-other-numbers first-line",
    r"cause|context\b|note": "without-cause without-notes",
    r"same object|itself": "cloned viewed aliased",
    r"tuple|list|container|class|mapping|order of keys": "other-container plain-containers "
    "other-member-containers",
    r"view|share|memory|overlap|new tensor|itself": "cloned shared-memory viewed aliased "
    "arguments-cloned own-version replicas-with-cloned-buffers replicas-with-buffers-of-source "
    "replicas-with-cloned-parameters",
    r"version": "version-raised own-version arguments-version-raised",
    r"row-major|stride|layout|channels|contiguous": "other-strides row-major arguments-row-major "
    "replicas-with-other-strides",
    r"dtype|promot|convert|complex|half": "dtype",
    r"sparse|coalesced": "dense sparse arguments-dense",
    r"gradient|differentiable|derivative|backward|penalty": "gradient-zero gradient-doubled "
    "no-second-derivative cloned-and-detached detached gradient-reversed gradient-raises",
    r"requires? (no|a) grad|leaf|leaves|history": "detached requiring-grad",
    r"stream|wait|complete|ready|order": "late late-arguments late-gradient under-default-streams "
    "synchronized modules-on-default-streams leaves-stream",
    r"device": "on-next-device on-cpu leaves-device modules-on-another-device under-other-device "
    "device-left-after-error",
    r"warn": "warnings-dropped warning-added",
    r"autocast": "modules-without-autocast under-no-autocast modules-with-autocast "
    "leaves-autocast",
    r"grad mode|no_grad|detach": "modules-without-grad modules-with-grad under-no-grad under-grad "
    "leaves-grad-mode replicas-with-leaf-parameters replicas-with-detached-parameters",
    r"inference": "modules-out-of-inference under-inference",
    r"context|default device": "modules-in-an-empty-context in-another-context "
    "modules-under-another-default-device",
    r"thread": "modules-in-new-threads in-another-thread modules-at-most-64-at-a-time "
    "leaves-thread",
    r"hook": "replicas-without-hooks replicas-with-hooks-of-source given-modules-with-a-hook",
    r"is-replica|former": "replicas-unmarked",
    r"buffer": "replicas-with-changed-buffers replicas-without-buffers "
    "replicas-with-cloned-buffers replicas-with-buffers-of-source "
    "given-modules-with-new-buffers given-modules-with-changed-buffers",
    r"parameter|weight": "replicas-with-changed-parameters replicas-with-detached-parameters "
    "replicas-with-real-parameters replicas-without-parameters "
    "given-modules-with-changed-parameters given-modules-with-new-parameters",
    r"submodule|child|shared|tied": "replicas-with-copied-children replicas-without-children "
    "replicas-with-children-in-reverse replicas-with-dictionaries-of-source",
    r"attribute|state": "replicas-without-attributes replicas-with-an-attribute "
    "given-modules-with-an-attribute replicas-switched",
    r"train|eval|mode": "replicas-switched given-modules-switched",
    r"alive|reference|freed|free|garbage|keep": "result-kept arguments-kept replicas-kept "
    "leaves-collector",
    r"random|generator|dropout": "leaves-random-state",
    r"concatenat|joined|order|row|chunk|sum|slice|cop(y|ies)": "last-element rotated "
    "tree-reversed values members-reversed shared-memory",
    r"empty|shape|scalar|dimension": "flat extra-dimension refused",
    r"written|change|write": "arguments-written lists-extended",
}
#: Kinds that most tests notice. A search tries them last.
_GROSS = (
    "refused",
    "gradient-raises",
    "replicas-without-parameters",
)
#: The beginnings of the names of kinds to try first if a function returns modules.
_ABOUT_REPLICAS = ("replicas-", "given-modules-", "gradient-", "accepted")


def candidates(clause: str, text: str, log: CallLog, guards: int = 2) -> Iterator[Perturbation]:
    """Yield perturbations that probably fail a clause, the most probable first.

    Args:
        clause: The id of the clause.
        text: The id and the statement.
        log: The recorded calls.
        guards: The number of guards for each function.
    """
    chosen = []
    for function in sorted(log.functions(clause), key=lambda name: _distance(clause, name)):
        for guard in list(log.guards(clause, function))[:guards]:
            chosen.append((function, guard, list(_kinds(clause, text, function, guard, log))))
    longest = max((len(kinds) for *_, kinds in chosen), default=0)
    for start in range(0, longest, 8):
        for function, guard, kinds in chosen:
            yield from (Perturbation(function, kind, guard) for kind in kinds[start : start + 8])


def _distance(clause: str, function: str) -> tuple[int, int]:
    """Return a number that is small if the id of a clause names a function."""
    words = set(re.split(r"[._-]", clause.lower()))
    theirs = re.split(r"[._]", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function).lower())
    return -len(words & set(theirs)), len(theirs)


def _kinds(
    clause: str, text: str, function: str, guard: frozenset[str], log: CallLog
) -> Iterator[str]:
    calls = log.calls(clause, function, guard)
    outcome = frozenset().union(*(call.outcome for call in calls))
    names = {name.split(":")[0] for call in calls for name in call.facts if ":" in name}
    possible = set(_possible(outcome, function))
    hinted = [
        k for words, kinds in _HINTS.items() if re.search(words, text) for k in kinds.split()
    ]
    if outcomes.MODULES in outcome:
        hinted.sort(key=lambda kind: not kind.startswith(_ABOUT_REPLICAS))
    arguments = [
        f"{kind}:{name}"
        for name in sorted(names - {"self"}, key=lambda name: name not in text)
        for kind in PARAMETERS
    ]
    fine = [kind for kind in KINDS if kind not in _GROSS]
    named = [k for k in arguments if k.split(":")[1] in text]
    ordered = [*hinted, *named[:14], *fine, *arguments, *_GROSS]
    hints = [kind for kind in ordered if kind in possible or ":" in kind]
    yield from dict.fromkeys(hints)


def _possible(outcome: Iterable[str], function: str) -> Iterator[str]:
    """Yield the kinds that can change calls with this outcome."""
    known = set(outcome)
    if outcomes.RAISED in known:
        yield from errors.KINDS
    if outcomes.RETURNED in known:
        for group in (results, memory, containers, effects):
            yield from group.KINDS
        yield "refused"
    if outcomes.GRAD in known:
        yield from gradients.KINDS
    yield from (*surroundings.KINDS, *leftovers.KINDS)
    yield from ("arguments-written", "arguments-version-raised", "lists-extended")
    yield from ("arguments-cloned", "arguments-detached")
    yield from ("arguments-row-major", "arguments-dense")
    if function.startswith(("parallel_apply", "data_parallel", "distributed", "replicate")):
        yield from (*modules.KINDS, *module_threads.KINDS, *given_modules.KINDS)
    if outcomes.MODULES in known:
        yield from (*replicas.KINDS, *replica_tensors.KINDS)
