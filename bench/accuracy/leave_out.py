"""How good is the model for kernels like none it was fitted to? A family is left out at a time.

The figures fitted to measured times are those of kind "fitted" in `nki_dist.arch`, and those whose
source names measured rows (ROWS) before anything else. For each family they are fitted anew without
its rows, and its rows are then simulated with what came out. A fit tries values around today's:
first every figure is moved alone and the change of every row's time is recorded; changes of several
figures are taken to multiply, and figures are moved one after the other while the error of the rows
that take part falls. That product is only used to choose values. The error that is reported comes
from simulating the family with all of them.

Only a sample of rows of each family is used, the ones that simulate quickest, since every row is
simulated several times for each figure. Errors of rules that have no figure aren't left out: the
rules were found while looking at all families.
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
from nki_dist.launcher.profiles import profile_of_reports
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing import COMPILED

FACTORS: Final = (0.6, 0.8, 1.25, 1.6)
PLATFORMS: Final = ("trn1", "trn2")
SAMPLE: Final = 8  # rows of each family
_ROWS: Final = "ROWS"
_ROUNDS: Final = 20  # over all figures; the descent ends when a round changes nothing


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
        return profile_of_reports(self, forced_algorithm(), *self.launched, COMPILED)


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


class Effects(NamedTuple):
    """For each row, the logarithm of its error now and of its change for a figure and a factor."""

    rows: list[Row]
    errors: np.ndarray
    changes: Mapping[tuple[Figure, float], np.ndarray]

    def without(self, family: str) -> Effects:
        keep = np.array([row.family != family for row in self.rows])
        rows = [row for row in self.rows if row.family != family]
        return Effects(rows, self.errors[keep], {k: v[keep] for k, v in self.changes.items()})


def loss(rows: Sequence[Row], errors: np.ndarray) -> float:
    """What a fit makes small: the mean over families of the median absolute error.

    Rows that two cores worked on say nothing of the scale: their median is taken off.
    """
    families = np.array([row.family for row in rows])
    cores = np.array([TWO_CORES in row.flags for row in rows])
    errors = errors - np.where(cores, np.median(errors[cores]) if cores.any() else 0.0, 0.0)
    return float(np.mean([np.median(abs(errors[families == f])) for f in set(families)]))


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
    rows: Sequence[Row], jobs: int, limits: Limits, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """By family, the median error of its rows with figures fitted without it, and with today's."""
    of = figures()
    trials = [{figure: factor} for figure in of for factor in FACTORS]
    changes: dict[str, np.ndarray] = {}
    now: dict[str, float] = {}
    for row, answer, error in each(partial(times, trials=trials), rows, jobs, limits):
        say(f"{row.id}: {error or f'{len(trials)} changes'}")
        if answer is not None:
            now[row.id] = measured_error(row, answer[0])
            changes[row.id] = np.log(np.array(answer[1:]) / answer[0])
    ran = [row for row in rows if row.id in now]
    effects = Effects(
        ran,
        np.array([now[row.id] for row in ran]),
        {
            next(iter(trial.items())): np.array([changes[row.id][n] for row in ran])
            for n, trial in enumerate(trials)
        },
    )
    chosen = {
        family: refitted(effects.without(family), of)
        for family in dict.fromkeys(row.family for row in ran)
    }
    left: dict[str, float] = {}
    for row, answer, error in each(partial(_again, chosen=chosen), ran, jobs, limits):
        say(f"{row.id}: {error or f'left out {answer:.1f} us'}")
        if answer is not None:
            left[row.id] = measured_error(row, answer)
    return _summary([row for row in ran if row.id in left], now, left, chosen)


def _again(row: Row, chosen: Mapping[str, Mapping[Figure, float]]) -> float:
    return times(row, [chosen[row.family]])[1]


def _summary(
    rows: Sequence[Row],
    now: Mapping[str, float],
    left: Mapping[str, float],
    chosen: Mapping[str, Mapping[Figure, float]],
) -> dict[str, Any]:
    families = {}
    for family in chosen:
        mine = [row for row in rows if row.family == family]
        moved = {f.name: factor for f, factor in chosen[family].items() if factor != 1}
        families[family] = {
            "rows": len(mine),
            "now": round(_median(mine, rows, now), 2),
            "left_out": round(_median(mine, rows, left), 2),
            "moved": moved,
        }
    medians = {"now": _median(rows, rows, now), "left_out": _median(rows, rows, left)}
    return {"families": families, **{name: round(value, 2) for name, value in medians.items()}}


def _median(mine: Sequence[Row], rows: Sequence[Row], errors: Mapping[str, float]) -> float:
    """In percent; the factor of rows that two cores worked on is that of all of them."""
    shared = [errors[row.id] for row in rows if TWO_CORES in row.flags]
    scale = float(np.median(shared)) if shared else 0.0
    off = [abs(errors[row.id] - scale * (TWO_CORES in row.flags)) for row in mine]
    return percent(float(np.median(off)))


def write(path: Path, found: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n")


def read(path: Path) -> Mapping[str, Any]:
    """What `write` wrote; empty where there is no file."""
    return json.loads(path.read_text()) if path.exists() else MappingProxyType({})
