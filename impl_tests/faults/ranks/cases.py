"""The cases of lost ranks: how ranks are lost, where, and which ranks."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

__all__ = ["HOWS", "RETURNING", "STORES", "WHERES", "Case", "draw_case", "list_cases"]

#: A way to lose a rank -> its meaning.
HOWS = {
    "os._exit": "the process ends by os._exit",
    "sys.exit": "SystemExit is raised",
    "killed": "the process gets SIGKILL",
    "stopped": "the process gets SIGSTOP; it continues after all other ranks have ended",
    "raises": "a ValueError is raised",
    "stays away": "the main thread waits; it continues after all other ranks have ended",
    "fails": "torch.distributed raises a RuntimeError on this rank, in place of a collective",
}
#: The ways after which the lost rank continues, when all other ranks have ended.
RETURNING = ("stopped", "stays away")
#: A place where ranks are lost -> its meaning. All places except the constructor are in the second
#: step. The first step succeeds.
WHERES = {
    "constructor": "at the first collective of the constructor",
    "between": "between the steps",
    "buffers": "at the broadcast of the buffers, in forward",
    "forward": "in the forward of the module",
    "exchange": "at the exchange of the ranks' results, in forward",
    "gather": "at the gather of the outputs, in forward",
    "part": "in `part`, while it reads its argument",
    "mean": "at the collective of `mean`",
    "backward": "in a hook of a tensor between two layers, in backward",
    "reduction": "at any one of the collectives of backward",
}
#: The places at a collective: the fault occurs just before or just after the collective begins.
COLLECTIVES = ("constructor", "buffers", "exchange", "gather", "mean", "reduction")
#: The store of the process group: a file, a server in the process of rank 0, or a server in
#: another process, as with torchrun.
STORES = ("file", "rank 0", "other process")


@dataclass(frozen=True)
class Case:
    """The faults of one trial.

    Args:
        seed: The seed of all draws.
        size: The number of ranks.
        lost: The rank of each fault, and how the rank is lost.
        where: One of ``WHERES``.
        raising: A rank that is not lost, but raises an error of its own in the same step; None
            for no such rank.
        is_begun: Whether faults at a collective occur after it has begun.
        draw: A number that selects one of the collectives of backward.
        gather_output: As for ``impl.distributed.DataParallel``.
        input_grads: Whether the inputs require gradients.
        store: One of ``STORES``.
        is_finalized: Whether each process finalizes the Python interpreter before it ends. This is
            slow. If False, each process only joins its threads.
    """

    seed: int
    size: int
    lost: tuple[tuple[int, str], ...]
    where: str
    raising: int | None
    is_begun: bool
    draw: int
    gather_output: bool
    input_grads: bool
    store: str
    is_finalized: bool

    @property
    def how(self) -> str:
        """How ranks are lost; `two ways` if two ranks are lost in different ways."""
        hows = {how for _, how in self.lost}
        return hows.pop() if len(hows) == 1 else "two ways"

    @property
    def culprits(self) -> frozenset[int]:
        """The ranks that an error may name."""
        raising = () if self.raising is None else (self.raising,)
        return frozenset([*(rank for rank, _ in self.lost), *raising])

    @property
    def raises_where(self) -> str:
        """The place at which ``raising`` raises its error."""
        return self.where if self.where in ("part", "backward") else "forward"

    def __str__(self) -> str:
        lost = ",".join(f"{rank}:{how}" for rank, how in self.lost)
        begun = f" begun={self.is_begun}" if self.where in COLLECTIVES else ""
        raising = "" if self.raising is None else f" rank {self.raising} raises"
        finalized = " finalized" if self.is_finalized else ""
        return f"{lost} {self.where}{begun}{raising} store={self.store}{finalized}"

    def options(self) -> str:
        """Return the options of the command that repeats this case."""
        lost = ",".join(f"{rank}:{how}" for rank, how in self.lost)
        return (
            f"--ranks {self.size} --seed {self.seed} --count 1 --where '{self.where}' "
            f"--lost '{lost}' --raising {-1 if self.raising is None else self.raising} "
            f"--store '{self.store}'"
        )


def draw_case(
    seed: int,
    size: int,
    *,
    where: str | None = None,
    lost: tuple[tuple[int, str], ...] | None = None,
    raising: int | None = None,
    store: str | None = None,
) -> Case:
    """Return the case of ``seed``, with the given values in place of drawn ones.

    For ``raising`` = -1 no rank raises an error of its own.
    """
    rng = random.Random(seed)
    drawn_where = rng.choice(list(WHERES))
    ranks = rng.choice(_subsets(size))
    drawn_hows = [rng.choice(list(HOWS)) for _ in ranks]
    drawn_raising = rng.choice([None, None, *range(size)])
    case = Case(
        seed,
        size,
        lost or tuple(zip(ranks, drawn_hows, strict=True)),
        where or drawn_where,
        drawn_raising if raising is None else None if raising < 0 else raising,
        is_begun=rng.random() < 0.5,
        draw=rng.randrange(1000),
        gather_output=rng.random() < 0.5,
        input_grads=rng.random() < 0.5,
        store=rng.choice(STORES),
        is_finalized=rng.random() < 0.1,
    )
    case = case if store is None else replace(case, store=store)
    return _make_possible(case, replace_fails=lost is None)


def list_cases(seed: int, size: int) -> Iterator[Case]:
    """Yield each combination of a way to lose ranks, a place, and the lost ranks, once.

    No other rank raises an error. The other values of the n-th case are drawn from the seed
    ``seed + n``, where n begins with 0.
    """
    seeds = itertools.count(seed)
    for how, where, ranks in itertools.product(HOWS, WHERES, _subsets(size)):
        if how != "fails" or where in COLLECTIVES:
            lost = tuple((rank, how) for rank in ranks)
            yield draw_case(next(seeds), size, where=where, lost=lost, raising=-1)


def _subsets(size: int) -> list[tuple[int, ...]]:
    """Return each set of one or two ranks that leaves at least one rank."""
    counts = [count for count in (1, 2) if count < size]
    return [each for count in counts for each in itertools.combinations(range(size), count)]


def _make_possible(case: Case, *, replace_fails: bool) -> Case:
    """Return ``case`` with new values for those that its place does not allow."""
    if case.where == "gather":
        case = replace(case, gather_output=True)
    if case.where in ("part", "mean"):
        case = replace(case, gather_output=False)
    if replace_fails and case.where not in COLLECTIVES:
        lost = tuple((rank, "raises" if how == "fails" else how) for rank, how in case.lost)
        case = replace(case, lost=lost)
    # At these places the rank `raising` would raise its error in forward. The constructor runs no
    # forward. The exchange would report the error before the other places, and end the step.
    excludes_raising = case.where in ("constructor", "gather", "mean", "reduction")
    if excludes_raising or case.raising in dict(case.lost):
        case = replace(case, raising=None)
    return case
