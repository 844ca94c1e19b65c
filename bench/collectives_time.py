"""`python -m bench.collectives_time`: simulated time of an all-reduce against its size.

Writes docs/collectives_time.svg and prints the table of docs/collectives_time.md. Simulated times
are the same on every machine, so a test compares both files with what this module makes.
"""

from __future__ import annotations

from math import log2, log10
from pathlib import Path
from typing import Final

from bench.harness import table as markdown
from nki_dist.collectives.choose import choose
from nki_dist.collectives.cost import cost_ns
from nki_dist.collectives.members import Members
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.topology.topology import system

RANKS: Final = 64
SIZES: Final = tuple(sorted([2**k for k in range(10, 31)] + [56 << 20]))
TOLD: Final = tuple(sorted([4**k for k in range(5, 16)] + [56 << 20]))  # in the table
CURVES: Final = (
    ("single_step_mesh", "#999999"),
    ("mesh", "#d95f02"),
    ("rdh", "#1b9e77"),
    ("kangaring", "#7570b3"),
    ("ring", "#e7298a"),
)
_LEFT: Final = 70.0
_TOP: Final = 20.0
_WIDTH: Final = 620.0
_HEIGHT: Final = 380.0
_MICROSECONDS: Final = (5, 30_000)  # of the vertical axis


def time_us(nbytes: int, forced: str = "") -> tuple[str, float]:
    """The algorithm of an all-reduce of 64 ranks on one trn2 instance, and its simulated time."""
    topology = system("trn2", ranks=RANKS)
    layout = RankLayout(topology.ranks_per_chip, topology.ranks_per_instance)
    question = Question("all_reduce", nbytes, tuple(range(RANKS)), layout, topology.arch)
    algorithm = choose(question, forced)
    return algorithm.name, cost_ns(Members(question, topology), algorithm) / 1000


def table() -> str:
    """Size, algorithm, time and bus bandwidth, in Markdown."""
    rows = []
    for nbytes in TOLD:
        name, us = time_us(nbytes)
        bus = 2 * (RANKS - 1) / RANKS * nbytes / us / 1000
        rows.append((_size(nbytes), name, f"{us:,.2f}", f"{bus:,.2f}"))
    columns = ("buffer per rank", "algorithm", "time, us", "bus bandwidth, GB/s")
    return "\n".join(markdown(columns, rows))


def _size(nbytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= size:
            return f"{nbytes // size} {unit}"
    return f"{nbytes >> 10} KiB"


def _point(nbytes: int, us: float) -> tuple[float, float]:
    low, high = map(log10, _MICROSECONDS)
    x = _LEFT + _WIDTH * (log2(nbytes) - 10) / 20
    y = _TOP + _HEIGHT * (1 - (log10(us) - low) / (high - low))
    return x, y


def _line(points: list[tuple[float, float]], style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" {style}/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


def _axes() -> list[str]:
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    parts = []
    for exponent in range(10, 31, 2):
        x, _ = _point(2**exponent, 10)
        parts += [_line([(x, _TOP), (x, bottom)], 'stroke="#eee"')]
        parts += [_text(x, bottom + 18, _size(2**exponent))]
    for us in (10, 100, 1000, 10_000):
        _, y = _point(1024, us)
        parts += [_line([(_LEFT, y), (right, y)], 'stroke="#eee"')]
        parts += [_text(_LEFT - 8, y + 4, f"{us:,} us", "end")]
    corners = [(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)]
    return [*parts, _line(corners, 'stroke="#333"')]


def plot() -> str:
    """All algorithms, thin, and the chosen one, thick, as SVG."""
    parts = _axes()
    for number, (name, colour) in enumerate(CURVES):
        times = [(n, time_us(n, name)[1]) for n in SIZES]
        seen = [_point(n, us) for n, us in times if us < _MICROSECONDS[1]]
        parts.append(_line(seen, f'stroke="{colour}" stroke-width="1.5"'))
        parts.append(_text(_LEFT + 16, _TOP + 16 + 16 * number, name, "start", colour))
    chosen = [_point(n, time_us(n)[1]) for n in SIZES]
    parts.append(_line(chosen, 'stroke="#000" stroke-width="4" stroke-opacity="0.3"'))
    label = _TOP + 16 + 16 * len(CURVES)
    parts.append(_text(_LEFT + 16, label, "chosen (broad grey)", "start"))
    size = f'width="{_LEFT + _WIDTH + 40}" height="{_TOP + _HEIGHT + 40}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif"'
    return "\n".join([f'{head} font-size="12">', *parts, "</svg>"]) + "\n"


def main() -> None:
    """Write the plot, print the table."""
    docs = Path(__file__).parents[1] / "docs"
    (docs / "collectives_time.svg").write_text(plot())
    print(table())


if __name__ == "__main__":
    main()
