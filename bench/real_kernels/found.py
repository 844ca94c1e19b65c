"""What the rows of a run come to: figures by corpus, counterexamples by code, rules met."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.real_kernels import reading
from bench.real_kernels.corpora import Corpus
from bench.real_kernels.entries import entry
from bench.real_kernels.rules import Place
from nki_dist.codes import EVIDENCE


class Finding(NamedTuple):
    """A refusal or a warning.

    Attributes:
        place: `corpus/path:line` of the source line.
        ran: how one knows that the kernel ran on a device, or "".
        read: whether it was only read there.
    """

    severity: str
    code: str
    place: str
    message: str
    ran: str = ""
    read: bool = False

    @property
    def explained(self) -> bool:
        """Whether it is let pass, is silent by evidence, or was only read where nobody ran it."""
        if entry(self.place, self.code) or (self.severity == "warning" and self.code in EVIDENCE):
            return True
        return self.read and not self.ran


@dataclass
class Found:
    """Of one corpus.

    Attributes:
        launched, traced: kernels, as (file, line, name).
        silent: (program, why) of programs that launched nothing.
    """

    corpus: Corpus
    launched: set[tuple[Any, ...]] = field(default_factory=set)
    traced: set[tuple[Any, ...]] = field(default_factory=set)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    by_kernel: dict[tuple[str, str], set[tuple[Any, ...]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    silent: list[tuple[str, str]] = field(default_factory=list)
    programs: int = 0
    seconds: float = 0.0

    def unexplained(self) -> Iterator[Finding]:
        for each in self.findings.values():
            if not each.explained:
                yield each

    def count(self, severity: str) -> int:
        """Kernels with a finding of this kind that no entry explains."""
        bad = [e for e in self.unexplained() if e.severity == severity]
        return len(set().union(*(self.by_kernel[e.code, e.place] for e in bad)))


def collected(
    rows: Iterable[dict[str, Any]], corpora: Iterable[Corpus], reference: Path
) -> dict[str, Found]:
    """The findings of a run, with those that reading finds."""
    by_name = {corpus.name: Found(corpus) for corpus in corpora}
    for row in rows:
        _add(by_name[row["corpus"]], row, reference.resolve())
    for found in by_name.values():
        checkout = reference / found.corpus.name
        broken, _ = reading.broken(checkout, found.corpus.kernels, found.corpus.beta1)
        for each in broken if found.programs else ():
            place = f"{found.corpus.name}/{each.file}:{each.line}"
            ran, text = found.corpus.ran(checkout, each.file), f"in {each.function}"
            known = Finding("warning", each.code, place, text, ran, read=True)
            if (each.code, place) not in found.findings:
                found.findings[each.code, place] = known
                found.by_kernel[each.code, place].add((place.rpartition(":")[0], each.function))
    return {name: found for name, found in by_name.items() if found.programs}


def _add(found: Found, row: dict[str, Any], reference: Path) -> None:
    found.programs += 1
    found.seconds += row["seconds"]
    if not row["launches"]:
        lines = row["said"].strip().splitlines() or [""]
        found.silent.append((row["program"], f"{row['status']}: {lines[-1][:160]}"))
    for launch in row["launches"]:
        kernel = tuple(launch["kernel"])
        found.launched.add(kernel)
        if launch["traced"]:
            found.traced.add(kernel)
        for each in launch["found"]:
            where = f"{each['file'] or ''}:{each['line'] or 0}"
            where = where.removeprefix(f"{reference}/")
            if not where.startswith(f"{found.corpus.name}/"):  # a program made the file
                where = f"{found.corpus.name}/{row['program']} ({Path(where).name})"
            key = (each["code"], where)
            path = where.removeprefix(f"{found.corpus.name}/").partition(":")[0]
            ran = found.corpus.ran(reference / found.corpus.name, path)
            finding = Finding(each["severity"], each["code"], where, each["message"], ran)
            found.findings.setdefault(key, finding)
            found.by_kernel[key].add(kernel)


# ---- text ----------------------------------------------------------------------------------------


def figures(found: dict[str, Found]) -> Iterator[str]:
    """A table of what came of each corpus."""
    head = "corpus | programs | kernels launched | traced | refused | warned | skipped | seconds"
    yield f"| {head} |"
    yield "|---" * 8 + "|"
    for name, each in found.items():
        numbers = (each.programs, len(each.launched), len(each.traced), each.count("error"))
        numbers += (each.count("warning"), len(each.silent), round(each.seconds))
        yield f"| {name} | " + " | ".join(map(str, numbers)) + " |"


def skipped(found: dict[str, Found]) -> Iterator[str]:
    """Programs that launched nothing, and what is let pass."""
    for name, each in found.items():
        for program, why in each.silent:
            known = entry(f"{name}/{program}", "")
            yield f"skipped {name}/{program}: {known.why if known else why}"
        for finding in each.findings.values():
            if not finding.read and (known := entry(finding.place, finding.code)):
                yield f"let pass {finding.place} [{finding.code}]: {known.why}"


def wrong(found: dict[str, Found]) -> list[str]:
    """Refusals and warnings that no entry explains."""
    return [
        f"{each.severity} {each.place} [{each.code}]: {each.message[:300]}"
        for of in found.values()
        for each in of.unexplained()
    ]


def counterexamples(found: dict[str, Found]) -> Iterator[str]:
    """A table of the codes that kernels break, with those that ran on a device."""
    by_code: dict[str, list[tuple[Finding, set[Any]]]] = defaultdict(list)
    for each in found.values():
        for key, finding in each.findings.items():
            by_code[finding.code].append((finding, each.by_kernel[key]))
    yield "| code | kernels | of which ran | first of those that ran | how one knows | now | else |"
    yield "|---|---|---|---|---|---|---|"
    for code, rows in sorted(by_code.items()):
        rows.sort(key=lambda row: (not row[0].ran, row[0].read, row[0].place))
        ran = [row for row in rows if row[0].ran]
        other = next((finding.place for finding, _ in rows if not finding.ran), "")
        first = f"{ran[0][0].place} | {ran[0][0].ran}" if ran else " | "
        count, of_them = (len(set().union(*(row[1] for row in x))) for x in (rows, ran))
        now = "silent" if code in EVIDENCE else "an entry" if rows[0][0].explained else "WRONG"
        yield f"| `{code}` | {count} | {of_them} | {first} | {now} | {other} |"


def rules_met(rows: Iterable[dict[str, Any]], places: dict[str, tuple[str, Place]]) -> list[str]:
    """Names of the rules that some traced kernel came to."""
    met = {Place(*p) for row in rows for launch in row["launches"] for p in launch["met"]}
    # A run may have been made in another checkout of this project.
    short = {(_tail(p.file), p.line, p.opcode) for p in met}
    return [name for name, (_, p) in places.items() if (_tail(p.file), p.line, p.opcode) in short]


def _tail(path: str) -> str:
    return re.sub(r"^.*/nki_dist/", "", path)
