"""What became of the mutants, as Markdown: the share that the tests notice, and the survivors."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mutants.areas import AREAS
from bench.mutants.reasons import REASONS
from bench.mutants.trials import SURVIVED, TIMEOUT, Trial


def table(trials: Sequence[Trial]) -> str:
    """A row per area: how many mutants, and what became of them."""
    lines = ["| area | mutants | killed | of them by the time limit | survived | share killed |"]
    lines.append("|---|---|---|---|---|---|")
    areas = [(area.name, [t for t in trials if t.mutant.area == area.name]) for area in AREAS]
    for name, some in [*areas, ("all", trials)]:
        if some:
            late = sum(t.outcome == TIMEOUT for t in some)
            alive = sum(t.outcome == SURVIVED for t in some)
            dead = len(some) - alive
            share = f"{100 * dead / len(some):.1f} %"
            lines.append(f"| {name} | {len(some)} | {dead} | {late} | {alive} | {share} |")
    return "\n".join(lines)


def survivors(trials: Sequence[Trial]) -> str:
    """Each mutant that no test noticed: where, the change, and why, if somebody has looked."""
    alive = sorted((t.mutant for t in trials if t.outcome == SURVIVED), key=lambda m: m[1:3])
    lines = []
    for m in alive:
        change = m.before, m.after
        why = REASONS.get((m.path, *change)) or REASONS.get(("", *change), "not looked at")
        lines.append(f"- `{m.path}:{m.line}` {why}\n\n      {m.before}\n      {m.after}\n")
    return "\n".join(lines)
