"""The chart of README.md: the ratios of impl and of its variants, as an SVG file."""

import io
import itertools
import re
from collections.abc import Sequence
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from reports.publishing.benchmarks import MEMORY, Row

_INK, _GRID = "#222222", "#dde1e5"
#: The colours and the markers of the variants of impl.
_SERIES = [("#0b5cad", "o"), ("#b1550b", "s"), ("#2d7a3a", "^")]
# Any: the type of the keys of rcParams differs between releases of matplotlib.
_SETTINGS: Any = {
    "svg.hashsalt": "torch-parallel-spec",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
    "legend.frameon": False,
}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def draw_ratios(rows: Sequence[Row]) -> str:
    """Return a chart of the time of torch.nn.parallel divided by that of each variant of impl.

    Rows without torch.nn.parallel and rows of peak memory are left out. The background is white.
    """
    shown = [
        row
        for row in reversed(rows)
        if "reference" in row.measured and not row.group.endswith(MEMORY)
    ]
    names = sorted({name for row in shown for name in row.measured if name.startswith("impl")})
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8, 0.8 + 0.32 * len(shown)), layout="constrained")
        axes = figure.subplots()
        for name, (colour, marker) in zip(names, itertools.cycle(_SERIES), strict=False):
            points = [
                (median(row.measured["reference"]) / median(row.measured[name]), place)
                for place, row in enumerate(shown)
                if name in row.measured
            ]
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=name)
        axes.axvline(1, color=_INK, linewidth=1, linestyle="--")
        axes.set_yticks(range(len(shown)), [row.group for row in shown])
        axes.set_ylim(-0.6, max(len(shown), 1) - 0.4)
        axes.set_xlabel("time of torch.nn.parallel / time")
        figure.legend(loc="outside upper right", ncols=len(names) or 1)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    """Return a figure as SVG on one line, with a white background."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    text = file.getvalue()
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = " ".join(text.split())
    return text.replace("<svg ", '<svg style="background: white" ', 1) + "\n"
