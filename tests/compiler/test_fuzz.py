"""Tampered program files (bench.fuzz): a sample of them, and what they are made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.fuzz import __main__ as fuzz
from bench.fuzz import workers
from bench.fuzz.corpus import corpus
from bench.fuzz.tamper import tampered
from bench.fuzz.trial import RAN, REFUSED, TYPED, WRONG, tried
from bench.fuzz.workers import MEMORY_BAR, TIME_BAR, Report, chunk_reports
from nki_dist.compiler import wire
from nki_dist.compiler.saved import parse
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import instructions
from tests.programs import said

ROOT = Path(__file__).parents[2]


def test_intact_files_run_and_hold_every_instruction():
    found = set()
    for intact in corpus():
        outcome = tried(intact.data, intact.ranks, 60.0)
        assert outcome.kind == RAN, (intact.name, outcome)
        programs, _ = parse(intact.data)
        found |= {i.opcode for p in programs for i in instructions(p.body)}
    assert found == set(INSTRUCTIONS)


def test_files_depend_on_seed_and_number_alone():
    assert tampered(7, 300) == tampered(7, 300)
    assert len({tampered(seed, n)[1] for seed in (7, 8) for n in range(40)}) == 80


def test_most_checksums_fit():
    fit = 0
    for n in range(200):
        try:
            wire.unpack(wire.COMPILED, tampered(7, n)[1])
            fit += 1
        except wire.ProgramFormatError:
            pass
    assert fit > 180


def fuzzed(seed: int, files: int) -> str:
    return said(
        "-m", "bench.fuzz", "--seed", seed, "--files", files, "--timeout", "0.1", folder=ROOT
    )


@pytest.mark.slow
def test_a_sample_of_tampered_files_ends_well():
    said = fuzzed(3, 1500)
    for kind in (REFUSED, RAN, TYPED):
        assert f"| {kind} | " in said


@pytest.mark.slow
def test_more_tampered_files_end_well():
    fuzzed(4, 12_000)


# ---- whether it would be noticed ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "noticed"),
    [
        (Report(0, RAN, 1.9, 1000), False),
        (Report(0, REFUSED, 0.001, 1, "ProgramFormatError: no"), False),
        (Report(0, TYPED, 0.001, 1, "DeadlockError: no"), False),
        (Report(0, WRONG, 0.001, 1, "TypeError: no", "here"), True),
        (Report(0, "crashed", 0, 0, "exit status 139"), True),
        (Report(0, "hung", 30, 0, "30 s without end"), True),
        (Report(0, RAN, TIME_BAR + 0.1, 1), True),
        (Report(0, RAN, 0.1, MEMORY_BAR + 1), True),
    ],
)
def test_what_counts_as_a_finding(report, noticed, capsys):
    assert fuzz.summary([report], 5) == noticed
    assert ("over the bar" in capsys.readouterr().out) == (
        report.seconds > TIME_BAR or report.mib > MEMORY_BAR
    )


def trial_of(monkeypatch, one):
    """Reports of three files of which the middle one does something else."""

    def trial(data, ranks, seconds):
        if data == tampered(1, 1)[1]:
            one()
        return tried(data, ranks, seconds)

    monkeypatch.setattr(workers, "tried", trial)
    monkeypatch.setattr(workers, "HANG", 2.0)
    return [(r.number, r.kind, r.mib > 200) for r in chunk_reports(1, range(3), 0.1)]


def kinds(n: int) -> str:
    return tried(tampered(1, n)[1], tampered(1, n)[0].ranks).kind


@pytest.mark.slow
def test_crashes_hangs_and_memory_are_seen(monkeypatch):
    first, last = (0, kinds(0), False), (2, kinds(2), False)
    crash = "import ctypes; ctypes.string_at(0)"
    assert trial_of(monkeypatch, lambda: exec(crash)) == [first, (1, "crashed", False), last]

    def hang():
        while True:
            pass

    assert trial_of(monkeypatch, hang) == [first, (1, "hung", False), last]
    much = trial_of(monkeypatch, lambda: np.ones(300 << 20, np.uint8))
    assert much == [first, (1, kinds(1), True), last]
