"""What was found, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.faults.harms import TIMEOUT, Harmed
from tests.faults.interrupts import Outcome
from tests.faults.threads import Step


def interrupts_table(found: Sequence[Outcome]) -> str:
    """A row for each phase of each host, and one for all."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in found:
        groups.setdefault(f"{outcome.host} | {outcome.phase}", []).append(outcome)
    if len(groups) > 1:
        groups["all | "] = list(found)
    rows = [
        "| host | phase | points | right | typed | hangs | aborts | untyped | wrong | leftovers "
        "| worst s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, some in groups.items():
        kinds = [o.verdict for o in some]
        shown = map(kinds.count, ("right", "typed", "hang", "abort", "untyped", "wrong"))
        left = sum(bool(o.leftovers) for o in some)
        worst = max(o.seconds for o in some)
        counted = " | ".join(map(str, (len(some), *shown, left)))
        rows.append(f"| {name} | {counted} | {worst:.1f} |")
    return "\n".join(rows)


def harms_table(found: Sequence[Harmed]) -> str:
    """A row for each: what each launch came to, and its seconds."""
    rows = [
        f"Stopped ones: in worlds with `timeout={TIMEOUT:g}`. The launch under way counts from the "
        "fault, others from their begin.\n",
        "| who | how | when | retries | under way | same world | new world | same again "
        "| program's end | left |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        names = ("under way", "same", "new", "same again", "end")
        steps = [_shown(one, name) for name in names]
        harm = " | ".join(map(str, one.harm)) + ("" if one.there else " (not there)")
        rows.append(f"| {harm} | {' | '.join(steps)} | {len(one.leftovers)} |")
    return "\n".join(rows)


def _shown(one: Harmed, name: str) -> str:
    hung = [step for step in one.steps if step.startswith(name) and "and then" in step]
    if name not in one.steps:
        return "**hang**" if hung else ""
    verdict, seconds = one.steps[name]
    late = ", late" if name in one.late else ""
    shown = verdict if verdict in ("right", "typed") else f"**{verdict}**"
    return f"{shown} {seconds:.1f}{late}"


def threads_table(found: Mapping[str, Sequence[Step]]) -> str:
    """A row for each step of each host."""
    rows = [
        "| host | step | | s | from the main thread, s | times, without noise |",
        "|---|---|---|---|---|---|",
    ]
    for host, steps in found.items():
        for step in steps:
            other = step.reference.seconds if step.reference else float("nan")
            rows.append(
                f"| {host} | {step.name} | {step.verdict} | {step.seconds:.2f} | {other:.2f} "
                f"| {step.ratio:.2f} |"
            )
    return "\n".join(rows)
