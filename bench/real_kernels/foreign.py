"""`python -m bench.real_kernels foreign NKI_REF`: the gate of foreign programs (`make foreign`).

The ladder of kernels with references (`--ladder`) is run on both hosts, and has to be right in all
of its cases; then the kernels of all checkouts below NKI_REF are traced (`corpora`, `gate`). Status
1 if the ladder isn't right, or a kernel is refused or warned about without a row in `entries`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.real_kernels import found as results
from bench.real_kernels import gate, rules
from bench.real_kernels.corpora import CORPORA, Options
from tests.foreign import table

LADDER = Path("../shared/ladder/ladder.py")
HOSTS = ("inprocess", "ray")
QUICK = Options(Path(), sample=1, budget=10, candidates=1)


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("reference", type=Path, metavar="NKI_REF", help="the checkouts' folder")
    command.add_argument("--ladder", type=Path, default=LADDER, help="default: where CI has it")
    command.add_argument("--only", default="", help="part of CORPUS/PROGRAM; `ladder` for that")
    command.add_argument("--quick", action="store_true", help="one test a file, no ladder on Ray")
    command.add_argument("--to", type=Path, default=Path("foreign.jsonl"), metavar="FILE")
    command.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    command.add_argument("--scratch", type=Path, default=Path("real_kernels_scratch"))
    command.add_argument("--report", action="store_true", help="of what --to has; runs nothing")
    command.add_argument(
        "--write",
        type=Path,
        metavar="COVER",
        help="make tests/foreign/constructs.txt anew, from this list of our tests (its docstring)",
    )


def run(options: argparse.Namespace) -> int:
    """Run what is asked for, and print what came of it; the exit status."""
    began = time.monotonic()
    reference: Path = options.reference
    wrong = [] if options.report else _ladder(options)
    if not options.report and options.only != "ladder":
        options.to.unlink(missing_ok=True)
        for row in _traced(options):
            print(_line(row), file=sys.stderr, flush=True)
    if options.to.exists() and options.only != "ladder":
        rows = [json.loads(line) for line in options.to.read_text().splitlines()]
        wrong += _report(rows, reference)
        if options.write:
            lines = options.write.read_text().splitlines()
            table.write(_constructs(rows, reference), dict(line.split("\t") for line in lines))
    print(f"{time.monotonic() - began:.0f} s; " + (f"{len(wrong)} WRONG" if wrong else "all right"))
    print("\n".join(wrong))
    return 1 if wrong else 0


def _ladder(options: argparse.Namespace) -> list[str]:
    if options.only not in ("", "ladder"):
        return []
    if not options.ladder.exists():
        print(f"ladder: skipped, {options.ladder} isn't there (LADDER=PATH names another)")
        return []
    wrong = []
    for host in HOSTS[:1] if options.quick else HOSTS:
        text = _rungs(options, host)
        good, _, cases = text.partition("/")
        print(f"ladder, {host}: {text}")
        if good != cases:
            wrong.append(f"ladder, {host}: {text}; {options.ladder} --host {host} says more")
    return wrong


def _rungs(options: argparse.Namespace, host: str) -> str:
    """`right/all` of the ladder's cases on a host."""
    report = options.scratch.resolve() / f"ladder-{host}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(options.ladder), "--host", host, "--json", str(report)]
    command += ["--jobs", str(options.jobs)]
    environment = {**os.environ, "NKI_REF": str(options.reference.resolve())}
    environment["PYTHONPATH"] = str(gate.ROOT)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not report.exists():
        return f"0/? {(done.stderr or done.stdout).strip()[-300:]}"
    cases = json.loads(report.read_text())
    for case in cases:
        if not case["ok"]:
            print(json.dumps(case)[:400])
    return f"{sum(case['ok'] for case in cases)}/{len(cases)}"


def _traced(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    chosen = QUICK if options.quick else Options(scratch)
    chosen = Options(scratch, chosen.sample, chosen.budget, chosen.candidates)
    missing = [c.name for c in CORPORA if not (options.reference / c.name).is_dir()]
    if missing:
        print(f"not below {options.reference}: {', '.join(missing)}")
    return gate.traced(CORPORA, options.reference, chosen, options.only, options.to, options.jobs)


def _line(row: dict[str, Any]) -> str:
    kernels = {tuple(launch["kernel"]) for launch in row["launches"]}
    codes = sorted({each["code"] for launch in row["launches"] for each in launch["found"]})
    name = f"{row['corpus']}/{row['program']}"
    return f"{name}: {row['status']}, {row['seconds']} s, {len(kernels)} kernels {codes or ''}"


def _report(rows: list[dict[str, Any]], reference: Path) -> list[str]:
    found = results.collected(rows, CORPORA, reference)
    print("\n".join(results.skipped(found)), end="\n\n")
    print("\n".join(results.figures(found)), end="\n\n")
    print("\n".join(results.counterexamples(found)), end="\n\n")
    places = rules.places()
    met = results.rules_met(rows, places)
    broken = {finding.code for each in found.values() for finding in each.findings.values()}
    codes = {code for code, _ in places.values()}
    print(
        f"{len(places)} rules: {len(met)} judge a traced kernel, {len(places) - len(met)} none, so "
        f"that this says nothing of them; kernels break {len(broken & codes)} codes of theirs"
    )
    print("no traced kernel comes to:", ", ".join(n for n in places if n not in met), end="\n\n")
    return results.wrong(found)


def _constructs(rows: list[dict[str, Any]], reference: Path) -> dict[str, str]:
    """Each construct with the first source line that has it; "" if none is known."""
    made: dict[str, str] = {}
    for row in rows:
        program = f"{row['corpus']}/{row['program']}"
        for launch in row["launches"]:
            for text, where in launch["constructs"].items():
                path = where.removeprefix(f"{reference.resolve()}/")
                if str(gate.ROOT) in path or "/real_kernels/" in path:
                    path = ""
                elif not path.startswith(f"{row['corpus']}/") and path:
                    path = f"{program} ({Path(path).name})"
                if not made.get(text):
                    made[text] = path
    return made
