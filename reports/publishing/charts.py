"""The chart of bench/README.md: the ratios of impl and of its variants, as an SVG file."""

from collections.abc import Sequence
from itertools import cycle
from statistics import median
from xml.sax.saxutils import escape

from reports.publishing.benchmarks import MEMORY, Row

#: In pixels: the width of the names of the rows, that of a ratio of 1, and the height of a row.
_NAMES, _UNIT, _HEIGHT = 200, 150, 22
#: A marker and its colour for each variant of impl.
_MARKERS = (("●", "#0b5cad"), ("■", "#b1550b"), ("▲", "#2d7a3a"))


def draw_ratios(rows: Sequence[Row]) -> str:
    """Return a chart of the time of torch.nn.parallel divided by that of each variant of impl.

    Rows without torch.nn.parallel and rows of peak memory are left out. The background is white.
    """
    shown = [row for row in rows if "reference" in row.measured and not row.group.endswith(MEMORY)]
    names = sorted({name for row in shown for name in row.measured if name.startswith("impl")})
    markers = dict(zip(names, cycle(_MARKERS), strict=False))
    ratios = [
        (place, name, median(row.measured["reference"]) / median(row.measured[name]))
        for place, row in enumerate(shown, 2)
        for name in markers
        if name in row.measured
    ]
    bottom = len(shown) + 2
    ticks = range(int(max((ratio for *_, ratio in ratios), default=0)) + 2)
    width, height = _NAMES + _UNIT * ticks[-1] + 20, _HEIGHT * (bottom + 2)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'style="background: white" font-family="sans-serif" font-size="13" fill="#222222">',
            *(_line(tick, bottom) for tick in ticks),
            *(_text(tick, bottom, f"{tick}") for tick in ticks),
            _text(ticks[-1] / 2, bottom + 1, "time of torch.nn.parallel / time"),
            *(
                _text(-0.1, place, row.group, 'text-anchor="end"')
                for place, row in enumerate(shown, 2)
            ),
            *(
                _marker(0.8 * index + 0.1, 0.7, *marker) + _text(0.8 * index + 0.17, 0.7, name, "")
                for index, (name, marker) in enumerate(markers.items())
            ),
            *(_marker(ratio, place, *markers[name]) for place, name, ratio in ratios),
            "</svg>\n",
        ]
    )


def _line(ratio: float, bottom: int) -> str:
    """Return a vertical line; that of equal times is dark."""
    x, colour = _NAMES + _UNIT * ratio, "#222222" if ratio == 1 else "#dde1e5"
    return f'<path d="M{x:.0f} {1.5 * _HEIGHT}V{(bottom - 0.5) * _HEIGHT}" stroke="{colour}"/>'


def _marker(ratio: float, place: float, marker: str, colour: str) -> str:
    return _text(ratio, place, marker, f'text-anchor="middle" fill="{colour}"')


def _text(ratio: float, place: float, text: str, style: str = 'text-anchor="middle"') -> str:
    x, y = _NAMES + _UNIT * ratio, _HEIGHT * place
    return f'<text x="{x:.0f}" y="{y:.0f}" dy="0.35em" {style}>{escape(text)}</text>'
