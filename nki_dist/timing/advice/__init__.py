"""What would make a launch faster: findings, each with the time that a replay says it would save.

A rule looks at a timeline for something that costs time, and says how the launch would look without
it; the launch is replayed so, and the difference is the saving. Invariant: no finding without such
a number, and none below `LEAST` of the launch's time. Savings don't add up: two findings may be
about the same stretch of the critical path. Doesn't know whether a change keeps the results right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from nki_dist.timing.advice.rules import RULES
from nki_dist.timing.advice.suspect import Suspect, spent_on
from nki_dist.timing.fixed import Part
from nki_dist.timing.replay import Launch
from nki_dist.timing.timeline import Timeline

MOST: Final = 5
LEAST: Final = 0.01  # of the launch's time


@dataclass(frozen=True)
class Finding:
    """Something that costs time.

    Attributes:
        rule: its name, such as "small transfers".
        text: what was seen, with numbers, and what would change it.
        lines: `file:line` of the kernel, the most costly first.
        saves_us: by how much the launch would be shorter, found by replaying it.
        share: that as a share of the launch's simulated time.
        source: what the rule follows.
    """

    rule: str
    text: str
    lines: list[str]
    saves_us: float
    share: float
    source: str

    @property
    def location(self) -> str:
        """The most costly of its lines."""
        return self.lines[0]

    def __str__(self) -> str:
        where = ", ".join(PurePath(line).name for line in self.lines)
        return f"{self.saves_us:,.3f} us ({self.share:.1%}) {self.rule}: {self.text}\n  at {where}"


def advise(timeline: Timeline) -> list[Finding]:
    """At most `MOST` findings, one of a rule, what saves most first."""
    total = timeline.total_ns
    launch = timeline.launch
    if launch is None or not total:
        return []
    spent = spent_on(timeline)
    suspects = [rule(timeline, spent) for rule in RULES]
    found = [_finding(s, launch, total) for s in suspects if s and s.most_ns >= LEAST * total]
    return sorted(filter(None, found), key=lambda f: (-f.saves_us, f.rule))[:MOST]


def _finding(suspect: Suspect, launch: Launch, total: float) -> Finding | None:
    """The best of a suspect's changes, if it is worth anything."""
    saves = total - min(_times(suspect, launch), default=total)
    if saves < LEAST * total:
        return None
    return Finding(
        suspect.rule, suspect.text, suspect.lines, saves / 1000, saves / total, suspect.source
    )


def _times(suspect: Suspect, launch: Launch) -> Iterable[float]:
    for changed in suspect.changes:
        cache: dict[tuple[int, int], Part] = {}  # cores that execute the same go on doing so
        parts = []
        for number, part in enumerate(launch.parts):
            key = (id(part.graph), number if suspect.by_core else 0)
            if key not in cache:
                cache[key] = changed(number, part)
            parts.append(cache[key])
        yield launch.total_ns(parts)
