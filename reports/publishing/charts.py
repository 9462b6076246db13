"""Charts of benchmarks as SVG that uses the colours of the web page.

matplotlib draws in placeholder colours. `_svg` replaces these by ``currentColor`` and by variables
of the style sheet, so that a chart fits light and dark pages and paper. Each library has its own
colour and marker.
"""

import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from reports.publishing.speed import Peak, Row, TimesBySize, Variants
from spec_tests.site.slugs import slug

__all__ = [
    "FILE_COLOURS",
    "memory_chart",
    "ratio_chart",
    "size_chart",
    "variant_chart",
]

_INK = "#010203"
_GRID = "#010204"
_FLOOR = "#010205"
_COLOURS = {"reference": "#010206", "impl": "#010207", "module": "#010208"}
_OTHER = "#010209"
_MARKERS = {"reference": "s", "impl": "o", "module": "^"}
#: The colours and the markers of the variants of impl.
_SERIES = [(_COLOURS[name], _MARKERS[name]) for name in ("impl", "reference", "module")]
_NAMES = {"reference": "torch.nn.parallel", "impl": "impl", "module": "plain module"}
#: For each placeholder colour: the CSS colour that replaces it.
_CSS_COLOURS = {
    _INK: "currentColor",
    _GRID: "var(--grid)",
    _FLOOR: "var(--floor)",
    _OTHER: "var(--other)",
    **{colour: f"var(--{name})" for name, colour in _COLOURS.items()},
}
#: For each placeholder colour: the colour in a file of its own, which has a white background.
FILE_COLOURS = {
    _INK: "#222222",
    _GRID: "#dde1e5",
    _COLOURS["reference"]: "#b1550b",
    _COLOURS["impl"]: "#0b5cad",
    _COLOURS["module"]: "#2d7a3a",
}
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
#: The ticks that the axis of ratios may have.
_TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 7, 10, 20, 50, 100)
_Figure = tuple[Figure, Axes]


def ratio_chart(rows: Sequence[Row], id_prefix: str) -> Markup:
    """Return a chart of each ratio with its quartiles and its floor (the least allowed ratio).

    Args:
        rows: The ratios.
        id_prefix: The name of the report. The ids in the chart begin with it, because a page has
            several charts.
    """
    with _new_figure(8, 0.8 + 0.32 * len(rows)) as (figure, axes):
        for place, row in enumerate(reversed(rows)):
            axes.plot([row.low, row.high], [place, place], color=_COLOURS["impl"], linewidth=2)
            axes.plot([row.value], [place], "o", color=_COLOURS["impl"])
            if row.floor is not None:
                axes.plot([row.floor], [place], "|", color=_FLOOR, markersize=13, mew=2)
        axes.axvline(1, color=_INK, linewidth=1, linestyle="--")
        axes.set_xscale("log")
        ends = [each for row in rows for each in (row.low, row.high, row.floor or 1)]
        low, high = min(ends, default=1), max(ends, default=1)
        _set_ticks(axes, [each for each in _TICKS if low <= each <= high])
        axes.set_yticks(range(len(rows)), [_label_text(row.group) for row in reversed(rows)])
        axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
        axes.set_xlabel("torch.nn.parallel / impl")
        return _svg(figure, f"{id_prefix}-ratios")


def size_chart(times: TimesBySize, id_prefix: str) -> Markup:
    """Return a chart of the time at each size, with logarithmic axes and a line per library."""
    with _new_figure(4.6, 3.2) as (figure, axes):
        for library, points in times.points.items():
            sizes = [point.size for point in points]
            colour = _COLOURS.get(library, _OTHER)
            axes.fill_between(
                sizes,
                [point.low * 1000 for point in points],
                [point.high * 1000 for point in points],
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
            axes.plot(
                sizes,
                [point.value * 1000 for point in points],
                marker=_MARKERS.get(library, "d"),
                color=colour,
                label=_library_label(library),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        _set_ticks(axes, sorted({p.size for each in times.points.values() for p in each}))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(times.unit)
        axes.set_ylabel("ms")
        axes.legend()
        return _svg(figure, f"{id_prefix}-curve-{times.name}-{times.unit}")


def variant_chart(
    groups: Sequence[Variants], id_prefix: str, colours: Mapping[str, str] | None = None
) -> Markup:
    """Return a chart of the time of torch.nn.parallel divided by that of each variant of impl.

    Args:
        groups: The groups of benchmarks. Groups without torch.nn.parallel are left out.
        id_prefix: The name of the report. The ids in the chart begin with it.
        colours: The colour that replaces each placeholder; None for the colours of the page.
    """
    shown = [each for each in groups if "reference" in each.times]
    names = sorted({name for each in shown for name in each.times if name.startswith("impl")})
    with _new_figure(8, 0.8 + 0.32 * len(shown)) as (figure, axes):
        for name, (colour, marker) in zip(names, itertools.cycle(_SERIES), strict=False):
            points = [
                (each.times["reference"].value / each.times[name].value, place)
                for place, each in enumerate(reversed(shown))
                if name in each.times
            ]
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=_label_text(name))
        axes.axvline(1, color=_INK, linewidth=1, linestyle="--")
        axes.set_yticks(range(len(shown)), [_label_text(each.group) for each in reversed(shown)])
        axes.set_ylim(-0.6, max(len(shown), 1) - 0.4)
        axes.set_xlabel("time of torch.nn.parallel / time")
        figure.legend(loc="outside upper right", ncols=len(names) or 1)
        return _svg(figure, f"{id_prefix}-variants", colours)


def memory_chart(peak: Peak, id_prefix: str) -> Markup:
    """Return a chart of peak memory with a bar for each library."""
    with _new_figure(4.6, 0.8 + 0.4 * len(peak.peaks)) as (figure, axes):
        libraries = list(reversed(list(peak.peaks)))
        for place, library in enumerate(libraries):
            size = peak.peaks[library] / 2**20
            axes.barh([place], [size], 0.6, color=_COLOURS.get(library, _OTHER))
        axes.set_yticks(range(len(libraries)), list(map(_library_label, libraries)))
        axes.set_xlabel("MiB")
        return _svg(figure, f"{id_prefix}-memory-{peak.group}")


@contextmanager
def _new_figure(width: float, height: float) -> Iterator[_Figure]:
    """Yield a figure and its axes. ``width`` and ``height`` are in inches."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def _set_ticks(axes: Axes, values: Sequence[float]) -> None:
    axes.minorticks_off()
    axes.set_xticks(values, [f"{value:g}" for value in values])


def _library_label(library: str) -> str:
    return _NAMES.get(library, _label_text(library, 24))


def _label_text(text: str, max_length: int = 56) -> str:
    """Return ``text``, cut to ``max_length`` characters."""
    return text if len(text) <= max_length else f"{text[:max_length]} …"


def _svg(figure: Figure, chart_id: str, colours: Mapping[str, str] | None = None) -> Markup:
    """Return a figure as SVG, by default in the page's colours; ids begin with ``chart_id``."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    text = file.getvalue()
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = slug(chart_id)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
    for placeholder, colour in (colours or _CSS_COLOURS).items():
        text = text.replace(placeholder, colour)
    # Screen readers skip the chart: the caption and the table contain the numbers.
    return Markup(text.replace("<svg ", '<svg aria-hidden="true" ', 1))


_NO_METADATA: Mapping[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
