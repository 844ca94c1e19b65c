"""Simulated against measured time as SVG; readable on light and on dark pages.

Drawn by hand, as docs/collectives_time.svg: two logarithmic axes and dots. Colours come from the
page's preference; where an image ignores it, the light ones hold on a background of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Final

from bench.accuracy.judge import Point, by_family

_LEFT, _TOP, _SIDE = 70.0, 20.0, 460.0
_LEGEND: Final = 130.0
_MARGIN: Final = 1.3  # of the axes, a factor beyond the outermost point
# Eleven hues that differ in lightness, too, and shapes that repeat at another rhythm.
_HUES: Final = (
    *("#1f77b4", "#d95f02", "#1b9e77", "#e7298a", "#7570b3", "#66a61e"),
    *("#a6761d", "#e6ab02", "#666666", "#17becf", "#b22222"),
)
_SHAPES: Final = ("circle", "square", "diamond")
_STYLE: Final = """<style>
  .page { fill: #ffffff } .ink { fill: #333333 } .axis { stroke: #333333; fill: none }
  .grid { stroke: #e5e5e5 } .same { stroke: #999999 }
  .off { stroke: #cccccc; stroke-dasharray: 4 4 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #131416 } .ink { fill: #cfd0d0 } .axis { stroke: #cfd0d0 }
    .grid { stroke: #2b2d31 } .same { stroke: #8a8a8a } .off { stroke: #4a4d52 }
  }
</style>"""


class _Axes:
    """Where a time is drawn; both axes span the same."""

    def __init__(self, times: Sequence[float]) -> None:
        self.low, self.high = min(times) / _MARGIN, max(times) * _MARGIN

    def share(self, us: float) -> float:
        return (log10(us) - log10(self.low)) / (log10(self.high) - log10(self.low))

    def x(self, us: float) -> float:
        return _LEFT + _SIDE * self.share(us)

    def y(self, us: float) -> float:
        return _TOP + _SIDE * (1 - self.share(us))

    def ticks(self) -> list[float]:
        powers = (10.0**n for n in range(-3, 10))
        return [us for us in powers if self.low <= us <= self.high]

    def line(self, factor: float, style: str) -> str:
        """The points where simulated is `factor` times measured, within the square."""
        start, end = max(self.low, self.low / factor), min(self.high, self.high / factor)
        return _line(
            self.x(start), self.y(start * factor), self.x(end), self.y(end * factor), style
        )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} class="{style}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}'
    return f'<text {place} class="ink">{escape(text)}</text>'


def _dot(x: float, y: float, number: int, title: str = "") -> str:
    colour, shape = _HUES[number % len(_HUES)], _SHAPES[number % len(_SHAPES)]
    style = f'fill="{colour}" fill-opacity="0.75"'
    inner = f"<title>{escape(title)}</title>" if title else ""
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {style}>{inner}</circle>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    corner = f'x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"'
    return f"<rect {corner}{turn} {style}>{inner}</rect>"


def _frame(axes: _Axes) -> list[str]:
    bottom, right = _TOP + _SIDE, _LEFT + _SIDE
    parts = []
    for us in axes.ticks():
        x, y, name = axes.x(us), axes.y(us), f"{us:,.0f} us" if us >= 1 else f"{us:g} us"
        parts += [_line(x, _TOP, x, bottom, "grid"), _text(x, bottom + 18, name)]
        parts += [_line(_LEFT, y, right, y, "grid"), _text(_LEFT - 8, y + 4, name, "end")]
    parts += [axes.line(1.0, "same"), axes.line(2.0, "off"), axes.line(0.5, "off")]
    parts.append(f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" class="axis"/>')
    middle = _TOP + _SIDE / 2
    turned = f' transform="rotate(-90 14 {middle:.1f})"'
    parts.append(_text(_LEFT + _SIDE / 2, bottom + 38, "measured"))
    parts.append(_text(14, middle, "simulated", more=turned))
    return parts


def scatter(points: Sequence[Point]) -> str:
    """Every point, by family; broken lines are half and double."""
    axes = _Axes([us for p in points for us in (p.us, p.row.measured_us)])
    parts = _frame(axes)
    for number, (family, members) in enumerate(by_family(points).items()):
        for p in members:
            x, y = axes.x(p.row.measured_us), axes.y(p.us)
            title = f"{p.row.id}: measured {p.row.measured_us:,.1f} us, simulated {p.us:,.1f} us"
            parts.append(_dot(x, y, number, title))
        right, y = _LEFT + _SIDE + 20, _TOP + 12 + 20 * number
        parts += [_dot(right, y - 4, number), _text(right + 12, y, family, "start")]
    width, height = _LEFT + _SIDE + _LEGEND, _TOP + _SIDE + 50
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif"'
    page = '<rect width="100%" height="100%" class="page"/>'
    return "\n".join([f'{head} font-size="12">', _STYLE, page, *parts, "</svg>"]) + "\n"
