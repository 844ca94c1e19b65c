"""What a result that is off is like beside what was expected: facts that hold for these numbers.

Every sentence was checked on all elements that it is about, within `rounding`; what holds only by
and large isn't said. Nothing here says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

_LISTED: Final = 6  # numbers that stand for a set of rows or columns
_MATCHED: Final = 256  # rows or columns that are compared with all others
# The largest error of one rounding, relative: half of a unit in the last place.
_TYPES: Final = {"float8_e5m2": 2**-3, "float8_e4m3": 2**-4, "bfloat16": 2**-8, "float16": 2**-11}
_ENDS: Final = {448.0: "float8_e4m3fn's", 240.0: "float8_e4m3's", 57344.0: "float8_e5m2's"} | {
    65504.0: "float16's"
}


def facts(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, rounding: float) -> list[str]:
    """Sentences about where and how a result differs.

    Args:
        got, expected: float64, of one shape.
        wrong: which elements differ by more than rounding; some do.
        rounding: relative, what isn't a difference.
    """
    shape = (-1, got.shape[-1]) if got.ndim > 1 else (1, -1)
    got, expected, wrong = (a.reshape(shape) for a in (got, expected, wrong))
    share = wrong.sum() / wrong.size
    found = [f"{int(wrong.sum()):,} of {wrong.size:,} elements differ ({share:.1%})"]
    found.append(_where(wrong))
    with np.errstate(all="ignore"):
        found += _odd(got, expected, wrong)
        sides = wrong & np.isfinite(got) & np.isfinite(expected)
        if sides.any():
            relation = next(_relations(got, expected, sides, max(2 * rounding, 1e-4)), None)
            found += [relation] if relation else [_sizes(got, expected, sides)]
    return found


# ---- where --------------------------------------------------------------------------------------


def _where(wrong: np.ndarray) -> str:
    rows, columns = wrong.any(1), wrong.any(0)
    if wrong.all():
        return "every element differs"
    if wrong.sum() == rows.sum() * columns.sum():
        return f"exactly those of {_inside(wrong)} differ"
    band = np.subtract.outer(-np.arange(wrong.shape[0]), -np.arange(wrong.shape[1]))
    low, high = int(band[wrong].min()), int(band[wrong].max())
    if ((band >= low) & (band <= high) == wrong).all() and (low, high) != (band.min(), band.max()):
        if high == band.max():
            return f"exactly the elements with column - row >= {low} differ"
        if low == band.min():
            return f"exactly the elements with column - row <= {high} differ"
        return f"exactly the elements with column - row from {low} to {high} differ"
    counts = wrong.sum(1)[rows]
    each = f"{counts.min():,}" + (f" to {counts.max():,}" if counts.min() < counts.max() else "")
    return f"they are in {_inside(wrong, f' ({each} in each) and ')}"


_NAMES: Final = ("row", "column")


def in_words(numbers: np.ndarray, size: int | None, what: str) -> str:
    """A set of numbers in words; `size` is how many there are, from 0 on, if that matters."""
    if len(numbers) == size:
        return f"all {what}s"
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    steps = np.unique(np.diff(numbers))
    if len(steps) == 1 and (len(numbers) > 2 or steps[0] == 1):
        end = f"{what}s {numbers[0]} to {numbers[-1]}"
        nth = {2: "2nd", 3: "3rd"}.get(int(steps[0]), f"{steps[0]}th")
        return end if steps[0] == 1 else f"every {nth} of {end}"
    few = ", ".join(map(str, numbers[:_LISTED]))
    if size is not None and size - len(numbers) <= _LISTED:
        others = sorted(set(range(size)) - set(numbers.tolist()))
        return f"all {what}s but {', '.join(map(str, others))}"
    return f"{what}s {few}" + (
        f", ... ({len(numbers)}{'' if size is None else f' of {size}'})"
        if len(numbers) > _LISTED
        else ""
    )


# ---- how ----------------------------------------------------------------------------------------


def _odd(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> Iterator[str]:
    for name, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        here = wrong & test(got) & ~test(expected)
        if here.any():
            yield f"{int(here.sum()):,} of them are {name}: {_inside(here)}"
        here = wrong & test(expected) & ~test(got)
        if here.any():
            yield f"{int(here.sum()):,} of them are finite where {name} is expected"


def _inside(here: np.ndarray, between: str = ", ") -> str:
    """Its rows and its columns."""
    both = np.flatnonzero(here.any(1)), np.flatnonzero(here.any(0))
    return between.join(in_words(s, n, w) for s, n, w in zip(both, here.shape, _NAMES))


def _relations(
    got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, near: float
) -> Iterator[str]:
    """What all wrong elements have in common, the simplest first."""
    g, w = got[wrong], expected[wrong]
    scale = float(np.sqrt((w**2).mean()))
    zero = (g == 0) != (w == 0)
    if zero.all() and (g == 0).any() and (w == 0).any():
        yield "they are 0 where something else is expected, and the other way round"
    if _one(g):
        yield f"all of them are {g[0]:.6g}" + (f"; {w[0]:.6g} is expected" if _one(w) else "")

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        return bool((np.abs(a - b) <= near * (np.abs(b) + 0.1 * scale)).all())

    ratio = float(np.median(g / np.where(w == 0, np.nan, w))) if (w != 0).all() else _fit(g, w)
    if np.isfinite(ratio) and same(g, ratio * w):
        yield f"they are {_factor(ratio)} expected"
    if len(g) > 1 and same(g - (g - w).mean(), w):
        yield f"they are what is expected {'+' if g[0] > w[0] else '-'} {abs((g - w).mean()):.6g}"
    clipped = np.abs(g) == np.abs(g).max()
    if len(g) > 1 and clipped.all():
        most = float(np.abs(g).max())
        whose = f", {_ENDS[most]} largest number" if most in _ENDS else ""
        yield f"they end at {most:.6g}{whose}, where more is expected"
    for name, rounded in (("rounded to", np.rint), ("cut off to", np.trunc)):
        if same(g, rounded(w)):
            yield f"they are what is expected, {name} whole numbers"
    yield from _turned(got, expected, wrong, same)
    for look in (_moved, _by_line):
        yield from look(got, expected, wrong, "row", same)
        yield from look(got.T, expected.T, wrong.T, "column", same)


def _one(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())


def _fit(g: np.ndarray, w: np.ndarray) -> float:
    return float((g * w).sum() / (w * w).sum())


def _factor(ratio: float) -> str:
    inverse = 1 / ratio if ratio else 0.0
    if abs(inverse) > 1.01 and abs(inverse - round(inverse)) < 0.005 * abs(inverse):
        return f"1/{round(inverse)} of what is"
    return f"{ratio:.4g} times what is"


_Same = Callable[[np.ndarray, np.ndarray], bool]


def _turned(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, same: _Same) -> Iterator[str]:
    rows, columns = got.shape
    if min(rows, columns) > 1:
        if rows == columns and same(got[wrong], expected.T[wrong]):
            yield "they are what is expected, transposed"
        elif same(got[wrong], expected.T.reshape(got.shape)[wrong]):
            yield "they are what is expected in the other order: columns where rows should be"
    for axis, name in enumerate(_NAMES):
        if got.shape[axis] > 1 and same(got[wrong], np.flip(expected, axis)[wrong]):
            yield f"they are what is expected with its {name}s in reverse order"


def _moved(
    got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, name: str, same: _Same
) -> Iterator[str]:
    """Rows, or columns, that hold what others should."""
    lines = np.flatnonzero(wrong.any(1))
    if got.shape[0] < 2 or got.shape[1] < 2 or len(lines) > _MATCHED:
        return
    found: list[int] = []
    for n in lines:
        at = wrong[n]
        off = np.abs(expected[:, at] - got[n, at]).max(1)
        best = int(np.nanargmin(off)) if np.isfinite(off).any() else int(n)
        if best == n or not same(got[n, at], expected[best, at]):
            # What moved out of sight is found nowhere: it doesn't count if it is at one end.
            found.append(-1)
        else:
            found.append(best)
    sources = np.array(found)
    matched = sources >= 0
    if matched.sum() < max(2, 0.7 * len(lines)) and not (len(lines) == 1 and matched.all()):
        return
    which = in_words(lines[matched], got.shape[0], name)
    steps = np.unique(sources[matched] - lines[matched])
    rest = "" if matched.all() else f" (not {in_words(lines[~matched], got.shape[0], name)})"
    if len(steps) == 1:
        way = "after" if steps[0] > 0 else "before"
        yield f"{which}{rest} hold what is expected {abs(steps[0])} {name}s {way}"
    elif _one(sources[matched]):
        yield f"{which}{rest} hold what is expected of {name} {sources[matched][0]}"
    else:
        pairs = ", ".join(f"{a} that of {b}" for a, b in zip(lines[matched][:4], sources[matched]))
        yield f"{which}{rest} hold what is expected of other {name}s: {pairs}"


def _by_line(
    got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, name: str, same: _Same
) -> Iterator[str]:
    """One factor, or one number added, for each row or column."""
    count = wrong.sum(1)
    lines = np.flatnonzero(count)
    if got.shape[0] < 2 or count[lines].max(initial=0) < 3:
        return
    g, w = np.where(wrong, got, 0.0), np.where(wrong, expected, 0.0)
    factors = (g * w).sum(1) / np.where((w * w).sum(1) == 0, 1, (w * w).sum(1))
    if same(got[wrong], (factors[:, None] * expected)[wrong]):
        low, high = factors[lines].min(), factors[lines].max()
        yield f"each {name} is off by a factor of its own, from {low:.4g} to {high:.4g}"
    added = (g - w).sum(1) / np.maximum(count, 1)
    if same(got[wrong], (expected + added[:, None])[wrong]):
        low, high = added[lines].min(), added[lines].max()
        yield f"to each {name} a number of its own is added, from {low:.4g} to {high:.4g}"


def _sizes(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> str:
    """How far off they are, and all elements, beside what a type's rounding would do."""
    usual = 0.1 * float(np.sqrt((expected[np.isfinite(expected)] ** 2).mean()))
    off = np.abs(got - expected) / np.maximum(np.abs(expected), usual)
    text = f"they are off by {_percent(np.median(off[wrong]))} of what is expected in the median, "
    text += f"by {_percent(off[wrong].max())} at most"
    usual_off = float(np.nanmedian(off))
    if usual_off > 1e-4 and wrong.mean() < 0.9:
        text += f"; with those that aren't off the median is {_percent(usual_off)}"
    named = [name for name, unit in _TYPES.items() if unit / 8 < usual_off <= unit]
    if named and off[wrong].max() < 0.5:  # which rounding never comes to
        # Half of all roundings are off by less than a third of the largest.
        name = min(named, key=lambda n: abs(np.log(3 * usual_off / _TYPES[n])))
        text += f", as rounding to {name} would"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:,.0f} %" if share >= 1 else f"{100 * share:.3g} %"
