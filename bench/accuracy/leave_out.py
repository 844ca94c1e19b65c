"""How good is the model for kernels like none it was fitted to? Some rows are left out.

The figures fitted to measured times are those of kind "fitted" in `nki_dist.arch`, and those whose
source names measured rows (ROWS) before anything else. For each family, each problem and each range
of sizes they are fitted anew without its rows, and its rows are then simulated with what came out.
A fit tries values around today's:
first every figure is moved alone and the change of every row's time is recorded; changes of several
figures are taken to multiply, and figures are moved one after the other while the error of the rows
that take part falls. That product is only used to choose values. The error that is reported comes
from simulating the rows left out with all of them.

Only a sample of rows of each family is fitted to, the ones that simulate quickest, since every row
is simulated several times for each figure; those that are judged are more. Errors of rules that
have no figure aren't left out: the rules were found while looking at all families.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

import nki_dist as nki
from bench.accuracy.judge import percent
from bench.accuracy.rows import ONE_CORE, TWO_CORES, Result, Row
from bench.accuracy.simulate import Limits, each, profile_of
from nki_dist import arch
from nki_dist.arch import Arch
from nki_dist.launcher.profiles import executed
from nki_dist.runtime.hosts import forced_algorithm

FACTORS: Final = (0.6, 0.8, 1.25, 1.6)
PLATFORMS: Final = ("trn1", "trn2")
SAMPLE: Final = 8  # rows of each family that are fitted to
QUICK: Final = 1_600  # instructions; rows that have more aren't judged
_ROWS: Final = "ROWS"
_ROUNDS: Final = 20  # over all figures; the descent ends when a round changes nothing


def _size(row: Row) -> str:
    us = row.measured_us
    return "below 100 us" if us < 100 else "100 us to 1 ms" if us < 1000 else "above 1 ms"


# What is left out together: rows with the same answer.
PARTS: Final[Mapping[str, Callable[[Row], str]]] = MappingProxyType(
    {
        "family": lambda row: row.family,
        "problem": lambda row: row.problem or row.id.rpartition("-")[0],
        "size": _size,
    }
)


class Figure(NamedTuple):
    """A figure fitted to measured times: a field of the architecture, or `field.key`."""

    name: str
    value: float
    source: str
    platforms: tuple[str, ...]


def figures() -> list[Figure]:
    """What was fitted; a figure that platforms share counts once."""
    found: dict[tuple[str, float, str], list[str]] = {}
    for platform in PLATFORMS:
        for name, fact in arch.get(platform).facts.items():
            if fact.kind == "fitted" or fact.source.startswith(_ROWS):
                values = fact.value if isinstance(fact.value, Mapping) else {"": fact.value}
                for key, value in values.items():
                    full = f"{name}.{key}" if key else name
                    found.setdefault((full, value, fact.source), []).append(platform)
    return [Figure(*key, tuple(platforms)) for key, platforms in found.items()]


def changed(machine: Arch, factors: Mapping[Figure, float]) -> Arch:
    """The architecture with fitted figures multiplied; those of other platforms aren't its own."""
    values: dict[str, Any] = {}
    for figure, factor in factors.items():
        if machine.instance in figure.platforms and factor != 1:
            owner, _, key = figure.name.partition(".")
            if key:
                values[owner] = {**values.get(owner, getattr(machine, owner))}
                values[owner][key] *= factor
            else:
                values[owner] = figure.value * factor
    return machine.with_values("fitted anew", **values) if values else machine


class _Trials(nki.World):
    """Profiles of a launch with the figures as they are, then for each of the trials.

    The kernel is compiled and run once: programs don't depend on what their instructions cost.
    """

    def __init__(self, trials: Sequence[Mapping[Figure, float]], **options: Any) -> None:
        super().__init__(**options)
        self.trials = trials

    def run_dry(self, compiled: Any, bound: Any, unknown: Any) -> Any:
        report, reports = super().run_dry(compiled, bound, unknown)
        self.launched = compiled, reports
        return report, reports

    def dry_run(self, *launch: Any, **options: Any) -> Any:
        report = super().dry_run(*launch, **options)
        today = self.arch
        device_us = [report.profile.device_us]
        for trial in self.trials:
            self.arch = changed(today, trial)
            same = self.arch is today  # a trial of another platform's figures
            device_us.append(device_us[0] if same else self._again().device_us)
        self.arch = today
        return replace(report, profile=device_us)

    def _again(self) -> Any:
        return executed(self, forced_algorithm(), *self.launched).profile()


def times(row: Row, trials: Sequence[Mapping[Figure, float]]) -> list[float]:
    """The simulated time of a row with the figures as they are, then for each of the trials."""
    return profile_of(row, partial(_Trials, trials))


def sample(rows: Iterable[Row], results: Mapping[str, Result], most: int = SAMPLE) -> list[Row]:
    """Of each family the rows that simulate quickest."""
    ran = [row for row in rows if row.judged and results.get(row.id, Result("")).device_us]
    ran.sort(key=lambda row: results[row.id].instructions)
    kept: dict[str, list[Row]] = {}
    for row in ran:
        members = kept.setdefault(row.family, [])
        if len(members) < most:
            members.append(row)
    return [row for members in kept.values() for row in members]


def quick(rows: Iterable[Row], results: Mapping[str, Result]) -> list[Row]:
    """The rows that execute at most QUICK instructions."""
    return [
        row
        for row in rows
        if row.judged and (r := results.get(row.id)) and r.device_us and r.instructions <= QUICK
    ]


class Effects(NamedTuple):
    """For each row, the logarithm of its error now and of its change for a figure and a factor."""

    rows: list[Row]
    errors: np.ndarray
    changes: Mapping[tuple[Figure, float], np.ndarray]

    def without(self, part: str, of: Callable[[Row], str] = PARTS["family"]) -> Effects:
        keep = np.array([of(row) != part for row in self.rows])
        rows = [row for row in self.rows if of(row) != part]
        return Effects(rows, self.errors[keep], {k: v[keep] for k, v in self.changes.items()})


def loss(rows: Sequence[Row], errors: np.ndarray) -> float:
    """What a fit makes small: the mean over families of their mean absolute errors.

    Rows that two cores worked on say nothing of the scale: their median is taken off.
    """
    families = np.array([row.family for row in rows])
    cores = np.array([TWO_CORES in row.flags for row in rows])
    errors = errors - np.where(cores, np.median(errors[cores]) if cores.any() else 0.0, 0.0)
    return float(np.mean([abs(errors[families == f]).mean() for f in set(families)] or [0.0]))


def refitted(effects: Effects, of: Sequence[Figure]) -> dict[Figure, float]:
    """Factors on today's figures, by coordinate descent over products of single changes."""
    chosen = dict.fromkeys(of, 1.0)
    errors = effects.errors.copy()
    best = loss(effects.rows, errors)
    for _ in range(_ROUNDS):
        before = dict(chosen)
        for figure in of:
            rest = errors - _change(effects, figure, chosen[figure])
            for factor in (1.0, *FACTORS):
                trial = rest + _change(effects, figure, factor)
                if (found := loss(effects.rows, trial)) < best - 1e-9:
                    best, errors, chosen[figure] = found, trial, factor
        if chosen == before:
            break
    return chosen


def _change(effects: Effects, figure: Figure, factor: float) -> np.ndarray:
    return np.zeros(len(effects.rows)) if factor == 1 else effects.changes[figure, factor]


def measured_error(row: Row, us: float) -> float:
    return log(us / row.measured_us * (2.0 if ONE_CORE in row.flags else 1.0))


def measure(
    rows: Sequence[Row],
    judged: Sequence[Row],
    jobs: int,
    limits: Limits,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Errors with figures fitted without a row's family, problem or size, and with today's.

    Args:
        rows: fitted to.
        judged: simulated again with what came out.
    """
    of = figures()
    effects = _effects(rows, of, jobs, limits, say)
    chosen = {
        kind: {
            part: refitted(effects.without(part, part_of), of)
            for part in dict.fromkeys(map(part_of, judged))
        }
        for kind, part_of in PARTS.items()
    }
    now: dict[str, float] = {}
    left: dict[str, dict[str, float]] = {kind: {} for kind in PARTS}
    for row, answer, error in each(partial(_again, chosen=chosen), judged, jobs, limits):
        say(f"{row.id}: {error or 'left out'}")
        if answer is not None:
            now[row.id] = measured_error(row, answer[0])
            for kind, us in zip(PARTS, answer[1:], strict=True):
                left[kind][row.id] = measured_error(row, us)
    ran = [row for row in judged if row.id in now]
    return {
        "rows": len(ran),
        "now": _errors(ran, ran, now),
        **{kind: _summary(kind, ran, now, left[kind], chosen[kind]) for kind in PARTS},
    }


def _effects(
    rows: Sequence[Row],
    of: Sequence[Figure],
    jobs: int,
    limits: Limits,
    say: Callable[[str], None],
) -> Effects:
    """What moving each figure alone does to the rows' times."""
    trials = [{figure: factor} for figure in of for factor in FACTORS]
    changes: dict[str, np.ndarray] = {}
    now: dict[str, float] = {}
    for row, answer, error in each(partial(times, trials=trials), rows, jobs, limits):
        say(f"{row.id}: {error or f'{len(trials)} changes'}")
        if answer is not None:
            now[row.id] = measured_error(row, answer[0])
            changes[row.id] = np.log(np.array(answer[1:]) / answer[0])
    ran = [row for row in rows if row.id in now]
    return Effects(
        ran,
        np.array([now[row.id] for row in ran]),
        {
            next(iter(trial.items())): np.array([changes[row.id][n] for row in ran])
            for n, trial in enumerate(trials)
        },
    )


def _again(row: Row, chosen: Mapping[str, Mapping[str, Mapping[Figure, float]]]) -> list[float]:
    return times(row, [chosen[kind][part_of(row)] for kind, part_of in PARTS.items()])


def _summary(
    kind: str,
    rows: Sequence[Row],
    now: Mapping[str, float],
    left: Mapping[str, float],
    chosen: Mapping[str, Mapping[Figure, float]],
) -> dict[str, Any]:
    parts = {}
    for part, factors in chosen.items():
        mine = [row for row in rows if PARTS[kind](row) == part]
        if mine:
            parts[part] = {
                "rows": len(mine),
                "now": _errors(mine, rows, now)["median"],
                "left_out": _errors(mine, rows, left)["median"],
                "moved": {f.name: factor for f, factor in factors.items() if factor != 1},
            }
    return {**_errors(rows, rows, left), "parts": parts}


def _errors(
    mine: Sequence[Row], rows: Sequence[Row], errors: Mapping[str, float]
) -> dict[str, float]:
    """In percent; the factor of rows that two cores worked on is that of all of them."""
    shared = [errors[row.id] for row in rows if TWO_CORES in row.flags]
    scale = float(np.median(shared)) if shared else 0.0
    off = [abs(errors[row.id] - scale * (TWO_CORES in row.flags)) for row in mine]
    levels = {"median": 0.5, "p90": 0.9}
    return {name: round(percent(float(np.quantile(off, q))), 2) for name, q in levels.items()}


def write(path: Path, found: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n")


def read(path: Path) -> Mapping[str, Any]:
    """What `write` wrote; empty where there is no file."""
    return json.loads(path.read_text()) if path.exists() else MappingProxyType({})
