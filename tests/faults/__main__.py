"""`make faults`: provokes faults, and looks whether launches give right answers or typed errors.

Interrupts at many points of launches' lives, Ray's processes killed and stopped, and everything
from short-lived threads; see `interrupts`, `harms` and `threads`. One program runs at a time, each
under a supervisor with deadlines. Exit status 1 if anything hung, aborted, raised what isn't an
NkiError, gave wrong results, came too late or left processes behind.

    make faults FAULTS="--only interrupts --seed 7 --count 300"
    make faults FAULTS="--only interrupts --host ray --phase map --seed 7 --point 12"
    make faults FAULTS="--only processes --harm raylet/stop"
    make faults FAULTS="--only threads --host ray"
"""

from __future__ import annotations

import argparse
import sys

from tests.faults.harms import harmed, harms, sample
from tests.faults.interrupts import SHARES, Outcome, counts, interrupts, points
from tests.faults.tables import harms_table, interrupts_table, threads_table
from tests.faults.threads import threads

PARTS = ("interrupts", "processes", "threads")


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="this part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host", choices=tuple(SHARES), help="of interrupts and threads")
    parser.add_argument("--count", type=int, default=300, help="interrupts over all phases")
    parser.add_argument("--phase", help="of the interrupts; the counts stay as they are")
    parser.add_argument("--point", type=int, action="append", help="only the one of this number")
    parser.add_argument("--harms", type=int, help="so many of the harms; all by default")
    parser.add_argument("--harm", default="", help="only those whose name begins so")
    options = parser.parse_args(given)
    print(f"seed {options.seed}", flush=True)
    bad = 0
    for part in options.only or PARTS:
        bad += {"interrupts": _interrupts, "processes": _processes, "threads": _threads}[part](
            options
        )
    print(f"\n{bad} faults that weren't borne" if bad else "\nall faults were borne")
    return 1 if bad else 0


def _hosts(options: argparse.Namespace) -> list[str]:
    return [options.host] if options.host else list(SHARES)


def _interrupts(options: argparse.Namespace) -> int:
    found: list[Outcome] = []
    for host in _hosts(options):
        for phase, count in counts(host, options.count).items():
            if options.phase not in (None, phase):
                continue
            if options.point:
                count = max(count, *(number + 1 for number in options.point))
            chosen = points(options.seed, host, phase, count)
            if options.point:
                chosen = [point for point in chosen if point.number in options.point]
            for outcome in interrupts(host, phase, chosen):
                found.append(outcome)
                _show_bad(outcome, options.seed)
            bad = sum(outcome.bad for outcome in found)
            print(f"  {host} {phase}: {len(chosen)} points, {bad} bad so far", file=sys.stderr)
    print("\n" + interrupts_table(found), flush=True)
    return sum(outcome.bad for outcome in found)


def _show_bad(outcome: Outcome, seed: int) -> None:
    if not outcome.bad:
        return
    print(f"\n{outcome.verdict}: {outcome.host} {outcome.phase}, interrupted at {outcome.where}")
    print(
        f'  make faults FAULTS="--only interrupts --host {outcome.host} --phase {outcome.phase} '
        f'--seed {seed} --point {outcome.point.number}"'
    )
    for name in outcome.leftovers:
        print(f"  left behind: {name}")
    for detail in outcome.details:
        print("    " + detail.replace("\n", "\n    "))
    sys.stdout.flush()


def _processes(options: argparse.Namespace) -> int:
    chosen = [h for h in harms() if str(h).startswith(options.harm)]
    found = []
    for harm in sample(chosen, options.harms, options.seed):
        result = harmed(harm)
        found.append(result)
        print(f"  {harm}: {result.verdict}", file=sys.stderr, flush=True)
        if result.bad:
            print(f'\n  make faults FAULTS="--only processes --harm {harm}"')
            print(f"  too late: {', '.join(result.late) or 'nothing'}")
            for text in (*result.leftovers, *result.details):
                print("    " + text.replace("\n", "\n    "), flush=True)
    print("\n" + harms_table(found), flush=True)
    return sum(result.bad for result in found)


def _threads(options: argparse.Namespace) -> int:
    found = {host: threads(host) for host in _hosts(options)}
    print("\n" + threads_table(found), flush=True)
    bad = [step for steps in found.values() for step in steps if step.bad]
    for step in bad:
        print(f"\n{step.name}: {step.verdict}, {step.ratio:.2f} times\n{step.text}", flush=True)
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())
