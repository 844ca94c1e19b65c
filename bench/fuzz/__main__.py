"""`python -m bench.fuzz`: 100,000 tampered program files, each read and, if it can be read, run.

A worker, forked for some hundred files at a time, reports every file's end, time and peak memory;
its address space is limited, so no file can have more memory than the bar allows. If it dies or
doesn't answer, the file it was at has crashed or hung. Files depend on the seed and their number
alone. Every chunk that is done is written to `--record`, and a run that is started again with the
same record goes on behind it. Whoever changes the code begins a new one.

Exit status 1 if a file ended otherwise than with a result or a typed error, or beyond the bars.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from bench.fuzz.corpus import corpus
from bench.fuzz.trial import RAN, REFUSED, SECONDS, TYPED
from bench.fuzz.workers import MEMORY_BAR, TIME_BAR, Report, chunk_reports

CHUNK = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--record", type=Path, help="what is done, to go on from")
    parser.add_argument("--timeout", type=float, default=SECONDS, help="of launches, in seconds")
    parser.add_argument("--most", type=int, default=20, help="findings of one kind to show")
    arguments = parser.parse_args()
    intact = corpus()
    print(f"{len(intact)} intact files, seed {arguments.seed}", flush=True)
    done = _read(arguments.record)
    last = arguments.first + arguments.files
    reports: list[Report] = []
    for start in range(arguments.first, last, CHUNK):
        key = f"{arguments.seed}/{start}/{min(start + CHUNK, last)}"
        if key not in done:
            found = chunk_reports(
                arguments.seed, range(start, min(start + CHUNK, last)), arguments.timeout
            )
            done[key] = [list(r) for r in found]
            if arguments.record:
                with arguments.record.open("a") as file:
                    file.write(json.dumps([key, done[key]]) + "\n")
        reports += [Report(*r) for r in done[key]]
        if sys.stderr.isatty():
            print(f"\r{len(reports)} files", end="", file=sys.stderr, flush=True)
    return summary(reports, arguments.most)


def _read(record: Path | None) -> dict[str, list[list[object]]]:
    if record is None or not record.exists():
        return {}
    return dict(json.loads(line) for line in record.read_text().splitlines())


def summary(reports: list[Report], most: int) -> int:
    kinds = Counter(r.kind for r in reports)
    print(f"\n| {len(reports)} files | |\n|---|---|")
    for kind, count in kinds.most_common():
        print(f"| {kind} | {count} ({100 * count / len(reports):.1f} %) |")
    slow = sorted(reports, key=lambda r: -r.seconds)[:5]
    large = sorted(reports, key=lambda r: -r.mib)[:5]
    print(f"| slowest | {_those(slow, 'seconds', 's')} |")
    print(f"| largest | {_those(large, 'mib', 'MiB')} |")
    types = Counter(r.what.partition(":")[0] for r in reports if r.kind == TYPED)
    print(f"| typed errors when run | {', '.join(f'{t} {n}' for t, n in types.most_common())} |")
    bad = [r for r in reports if r.kind not in (REFUSED, RAN, TYPED)]
    seconds = sum(r.seconds for r in reports)
    print(f"| a file takes | {1000 * seconds / len(reports):.1f} ms of the processor on average |")
    places = Counter((r.kind, r.what.partition(":")[0], r.frame) for r in bad)
    for (kind, what, frame), count in places.most_common():
        shown = [r for r in bad if (r.kind, r.frame) == (kind, frame)][:most]
        numbers = ", ".join(str(r.number) for r in shown)
        print(f"\n{count} x {kind}: {what} at {frame} (files {numbers})\n    {shown[0].what}")
    over = [r for r in reports if r.seconds > TIME_BAR or r.mib > MEMORY_BAR]
    for r in over:
        print(f"\nover the bar: file {r.number}, {r.seconds:.2f} s, {r.mib:.0f} MiB: {r.what}")
    return 1 if bad or over else 0


def _those(reports: list[Report], field: str, unit: str) -> str:
    return ", ".join(f"{getattr(r, field):.3g} {unit} (file {r.number})" for r in reports)


if __name__ == "__main__":
    sys.exit(main())
