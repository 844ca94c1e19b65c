"""`python -m bench.migrate`: published programs, migrated to 0.7 and compared bit for bit.

NKI_REF names a folder with checkouts of nki-samples and aws-neuron-sdk. Each kernel that a program
there launches is launched again as `nki-dist migrate` writes it, with the same arguments, checked
against NKI 0.7, deprecations being errors. A kernel counts if every array has the same bits, and
nobody had to do anything; one whose program launches nothing in time doesn't. Of Beta 1's kernels
the runtime adds products to PSUM one by one, of others it merges them, which rounds otherwise; so
these are also compared with merging off, and counted apart.

It fails if fewer than 80 % of all kernels do, of nki-samples' Beta 1 kernels or of both groups.
Kernels of programs that don't run as they are, or not in time, can't be compared and don't count
as migrated.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nki_dist.migrate import migrate

SAMPLES, DOCS = "nki-samples", "aws-neuron-sdk"
GROUPS = {SAMPLES: "Beta 1 kernels of nki-samples", DOCS: "examples of the documentation"}


LATE = "out of time"
BAR = 0.8
KERNEL = re.compile(r"^@nki\.[^\n]*\n(?:[^\n@d][^\n]*\n)*def (\w+)", re.MULTILINE)
OTHER, APART = "other results", "same, products added one by one"


class Row(NamedTuple):
    """A kernel, and what came of it."""

    group: str
    file: str
    kernel: str
    beta1: bool
    outcome: str


def programs(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Group, kind and path of what is run."""
    for folder in ("src", "contributed"):
        for file in sorted((root / SAMPLES / folder).glob("**/*.py")):
            if "__main__" in file.read_text() or folder == "contributed":
                yield SAMPLES, "script", file
    yield SAMPLES, "samples", root / SAMPLES
    for folder in ("nki/examples", "nki/deep-dives"):
        for file in sorted((root / DOCS / folder).glob("**/*.py")):
            yield DOCS, "script", file
    yield DOCS, "pages", root / DOCS


def outcomes(group: str, kind: str, path: Path, options: argparse.Namespace) -> Iterator[Row]:
    """The kernels that a program launches."""
    with tempfile.TemporaryDirectory() as scratch:
        records, migrated = Path(scratch, "records"), Path(scratch, "migrated")
        records.mkdir()
        said = _python(["bench.migrate.record", kind, str(path), str(records)], options, path)
        if kind == "script" and not list(records.iterdir()):
            yield from _unmeasured(group, path, said, options)
        for record in sorted(records.glob("*.pickle")):
            row = pickle.loads(record.read_bytes())
            file = Path(row["file"])
            folder = migrated / record.stem
            folder.mkdir(parents=True)
            for beside in file.parent.glob("*.py") if file.parent.exists() else ():
                _migrate(beside.read_text(), folder / beside.name)
            _migrate(row["text"], folder / file.name)
            replay = ["bench.migrate.replay", str(record), str(folder)]
            said = _python(replay, options, path)
            beta1 = "neuronxcc" in row["text"]
            if beta1 and said == OTHER and _python([*replay, "apart"], options, path) == "same":
                said = APART
            name = (
                str(file.relative_to(path if path.is_dir() else options.root / group))
                if (file.is_relative_to(options.root))
                else f"page {file.name}"
            )
            yield Row(group, name, row["name"], beta1, said or "no answer")


def _unmeasured(group: str, path: Path, said: str, options: argparse.Namespace) -> Iterator[Row]:
    """The kernels of a Beta 1 program that launches none of them in time, or at all."""
    text = path.read_text()
    if "neuronxcc" not in text:
        return
    left = any(d.rule in ("undecided", "removed") for d in migrate(text).decisions)
    for found in KERNEL.findall(text):
        outcome = LATE if said == LATE else f"doesn't run as it is: {said}"[:160]
        name = str(path.relative_to(options.root / group))
        yield Row(group, name, found, True, "left to a person" if left else outcome)


def _migrate(text: str, to: Path) -> None:
    try:
        to.write_text(migrate(text).text)
    except SyntaxError:
        to.write_text(text)


def _python(command: list[str], options: argparse.Namespace, path: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NKI_DIST_HOST": "inprocess",
    }
    if "mx" in path.name:
        environment["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn3"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                env=environment,
                cwd=os.getcwd() if "replay" in command[0] else scratch,
                capture_output=True,
                text=True,
                timeout=options.timeout,
            )
        except subprocess.TimeoutExpired:
            return LATE
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else done.stderr.strip().splitlines()[-1] if done.stderr else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.migrate", description=__doc__)
    parser.add_argument("--timeout", type=int, default=120, help="seconds per program")
    parser.add_argument("--only", default="", help="part of a program's path")
    options = parser.parse_args()
    if "NKI_REF" not in os.environ:
        raise SystemExit("NKI_REF isn't set: a folder with nki-samples and aws-neuron-sdk")
    options.root = Path(os.environ["NKI_REF"]).resolve()
    rows: dict[tuple[str, str, str], Row] = {}
    for group, kind, path in programs(options.root):
        if options.only in f"{kind} {path}":
            for row in outcomes(group, kind, path, options):
                rows.setdefault((row.group, row.file, row.kernel), row)
                print(f"{row.file} {row.kernel}: {row.outcome}", flush=True)
    print(table(list(rows.values())))
    missed = [share.title for share in shares(list(rows.values())) if not share.met]
    if missed and not options.only:
        raise SystemExit(f"below {BAR:.0%}: {', '.join(missed)}")


class Share(NamedTuple):
    """How many kernels of a group compute the same."""

    title: str
    same: int
    apart: int
    all: int

    @property
    def met(self) -> bool:
        """Whether that is as many as there should be."""
        return self.same + self.apart >= BAR * self.all


def shares(rows: list[Row]) -> list[Share]:
    """Of Beta 1 kernels, of examples for 0.6, and of both."""
    return [
        Share(
            title,
            sum(r.outcome == "same" for r in of),
            sum(r.outcome == APART for r in of),
            len(of),
        )
        for title, of in (
            ("Beta 1 kernels of nki-samples", [r for r in rows if r.group == SAMPLES and r.beta1]),
            ("examples of the documentation", [r for r in rows if r.group == DOCS]),
            ("all", [r for r in rows if r.group == DOCS or r.beta1]),
        )
    ]


def table(rows: list[Row]) -> str:
    """Markdown: what came of each kernel, and the shares."""
    lines = ["", "| file | kernel | written for | migrated |", "|---|---|---|---|"]
    for row in rows:
        release = "Beta 1" if row.beta1 else "0.6"
        lines.append(f"| {row.file} | `{row.kernel}` | {release} | {row.outcome} |")
    lines.append("")
    for one in shares(rows):
        if one.all:
            percent = f"{(one.same + one.apart) / one.all:.0%}, bar {BAR:.0%}"
            lines.append(
                f"{one.title}: {one.same + one.apart} of {one.all} the same without a hand "
                f"({percent}), {one.apart} of them where products in PSUM are added one by one"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
