"""The cases of lost ranks: how ranks are lost, where, and which ranks."""

import itertools
import random
from dataclasses import dataclass

__all__ = ["RETURNING", "SIZE", "LostRanks", "draw_case"]

#: The number of ranks.
SIZE = 3
#: For each way to lose a rank: its meaning.
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
#: For each place where ranks are lost: its meaning. All places except the constructor are in the
#: second step. The first step succeeds.
WHERES = {
    "between": "between the steps",
    "in forward": "in the forward of the module",
    "in part": "in `part`, while it reads its argument",
    "in backward": "in a hook of a tensor between two layers, in backward",
    "constructor": "at the first collective of the constructor",
    "forward": "at a collective of forward: for the buffers, the ranks' results or the outputs",
    "mean": "at the collective of `mean`",
    "backward": "at a collective of backward",
}
#: The places at a collective: the fault occurs just before or just after the collective begins.
COLLECTIVES = ("constructor", "forward", "mean", "backward")
#: The store of the process group: a file, a server in the process of rank 0, or a server in
#: another process, as with torchrun.
STORES = ("file", "rank 0", "other process")


@dataclass(frozen=True)
class LostRanks:
    """The faults of one trial.

    Args:
        seed: The seed of all draws.
        where: One of ``WHERES``.
        lost: The rank of each fault, and how the rank is lost.
        raising: A rank that is not lost, but raises an error of its own in the same step; None
            for no such rank.
        is_begun: Whether faults at a collective occur after it has begun.
        draw: A number that selects one of several collectives.
        gather_output: As for ``impl.distributed.DataParallel``.
        input_grads: Whether the inputs require gradients.
        store: One of ``STORES``.
        is_finalized: Whether each process finalizes the Python interpreter before it ends. This is
            slow. If False, each process only joins its threads.
    """

    seed: int
    where: str
    lost: tuple[tuple[int, str], ...]
    raising: int | None = None
    is_begun: bool = False
    draw: int = 0
    gather_output: bool = False
    input_grads: bool = False
    store: str = "file"
    is_finalized: bool = False

    def __str__(self) -> str:
        """Return the options that repeat the trial, and the case."""
        return f"--seed {self.seed} --count 1: lost ranks: {self!r}"

    @property
    def kind(self) -> str:
        """How the ranks are lost."""
        return " and ".join(sorted({how for _, how in self.lost}))

    @property
    def culprits(self) -> frozenset[int]:
        """The ranks that an error may name."""
        raising = () if self.raising is None else (self.raising,)
        return frozenset([*(rank for rank, _ in self.lost), *raising])


def draw_case(seed: int) -> LostRanks:
    """Return the case of ``seed``: one or two ranks are lost, and one remains."""
    rng = random.Random(seed)
    where = rng.choice([*WHERES])
    subsets = [ranks for count in (1, 2) for ranks in itertools.combinations(range(SIZE), count)]
    hows = [how for how in HOWS if how != "fails" or where in COLLECTIVES]
    lost = tuple((rank, rng.choice(hows)) for rank in rng.choice(subsets))
    # A collective would report the error of another rank before the fault occurs.
    others = [] if where in COLLECTIVES else sorted({*range(SIZE)} - dict(lost).keys())
    return LostRanks(
        seed,
        where,
        lost,
        raising=rng.choice([None, None, *others]),
        is_begun=rng.random() < 0.5,
        draw=rng.randrange(1000),
        gather_output=where not in ("in part", "mean") and rng.random() < 0.5,
        input_grads=rng.random() < 0.5,
        store=rng.choice(STORES),
        is_finalized=rng.random() < 0.1,
    )
