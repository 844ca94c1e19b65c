"""A seeded sample of what `make faults` does; and that it notices what it looks for."""

from __future__ import annotations

import sys
import textwrap

import pytest

from tests.faults import harms as h
from tests.faults.interrupts import SHARES, counts, interrupts, points
from tests.faults.supervised import ROOT, Gone, Hang, Program
from tests.faults.threads import threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

SEED = 33


def sampled(host: str, phase: str, count: int) -> None:
    found = list(interrupts(host, phase, points(SEED, host, phase, count)))
    assert len(found) == count
    bad = [(str(o.point), o.verdict, o.where, o.leftovers, o.details) for o in found if o.bad]
    assert not bad, f"seed {SEED}, {host}, {phase}: {bad}"


@pytest.mark.parametrize("phase", SHARES["inprocess"])
def test_interrupts_in_process(phase) -> None:
    sampled("inprocess", phase, 5 if phase not in ("import", "end") else 1)


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "count"), counts("ray", 60).items())
def test_interrupts_on_ray(phase, count) -> None:
    sampled("ray", phase, count)


def test_short_lived_threads_in_process() -> None:
    """However long it takes: other tests run meanwhile."""
    steps = threads("inprocess")
    assert [step for step in steps if step.verdict != "right" or step.leftovers] == []
    assert steps[-1].name == "end"


@pytest.mark.slow
@pytest.mark.parametrize("host", SHARES)
def test_short_lived_threads_are_as_fast(host) -> None:
    assert [step for step in threads(host) if step.bad] == []


@pytest.mark.slow
@pytest.mark.parametrize("harm", h.sample(h.harms(), 4, SEED), ids=str)
def test_harms(harm) -> None:
    found = h.harmed(harm)
    assert not found.bad, (found.steps, found.late, found.leftovers, found.details)


# ---- the harness itself -------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path):
    """Runs a program's text under a supervisor."""
    made = []

    def run(text: str) -> Program:
        head = "import os, sys, time\nfrom tests.faults.supervised import Voice\n"
        voice = "voice = Voice(int(sys.argv[1]))\nvoice.say(step='begun')\n"
        (tmp_path / "supervised_program.py").write_text(head + voice + textwrap.dedent(text))
        made.append(Program("supervised_program", PYTHONPATH=f"{tmp_path}:{ROOT}"))
        assert made[-1].hear(30)["step"] == "begun"
        return made[-1]

    yield run
    for one in made:
        one.process.kill()


def test_one_that_hangs_says_where(program) -> None:
    hangs = program("def here():\n    time.sleep(60)\nhere()")
    with pytest.raises(Hang, match="in here"):
        hangs.hear(0.5)
    assert hangs.ended(0.1).status is None


def test_one_that_aborts(program) -> None:
    aborts = program("os.abort()")
    with pytest.raises(Gone):
        aborts.hear(30)
    assert aborts.ended(5).aborted


@pytest.mark.parametrize("there", [True, False])
def test_what_a_program_leaves_behind(program, there) -> None:
    """Also what belongs to another group and session, and has no parent any more."""
    leaves = program(
        f"""
        import subprocess
        if {there}:
            name = os.environ["RAY_TMPDIR"] + "/stderr"
            command = [sys.executable, "-c", "import time; time.sleep(60)"]
            subprocess.Popen(command, stderr=open(name, "a"), start_new_session=True)
        """
    )
    ending = leaves.ended(10)
    assert ending.status == 0 and not ending.aborted
    assert ["time.sleep(60)" in name for name in ending.leftovers] == [True] * there


def test_an_interrupt_ends_a_program_and_isnt_an_abort(program) -> None:
    waits = program("time.sleep(60)")
    waits.interrupt(group=True)
    ending = waits.ended(10)
    assert ending.status not in (0, None) and not ending.aborted


def test_points_depend_on_nothing_but_seed_and_number() -> None:
    some, more = points(7, "ray", "map", 5), points(7, "ray", "map", 50)
    assert more[:5] == some and points(8, "ray", "map", 5) != some
    assert sum(sum(counts(host, 300).values()) for host in SHARES) == 300
