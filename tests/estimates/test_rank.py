"""`nki-dist rank`: the order, what can't be timed, and which reports are found again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nki_dist.cli import main, rank
from nki_dist.cli.shared import programs as _programs
from nki_dist.cli.shared import timed as _timed
from nki_dist.cli.shared.programs import Task
from nki_dist.timing.band import APART, HELD, groups

KERNEL = """
import numpy as np
import nki, nki.isa as nisa, nki.language as nl
from helper import FACTOR

@nki.jit
def scaled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for column in range(0, x.shape[1], COLUMNS):
        tile = nl.load(x[:, column : column + COLUMNS])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=FACTOR)
        nl.store(out[:, column : column + COLUMNS], tile)
    return out

"""
CALL = "print(scaled(np.ones((128, 2048), np.float32)))\n"
LARGE = "scaled(np.ones((129, 4096), np.float32))\n"
COUNTED = """
@nki.jit
def counted(x):
    count = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=x[0:1, 0:1])
    last = nisa.register_alloc()
    nisa.register_load(last, count)
    tile = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)
    for _ in nl.dynamic_range(0, last):
        nisa.memset(tile, 0)

counted(scaled(np.ones((128, 64), np.float32)).astype(np.int32))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with programs, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NKI_DIST_CACHE", str(tmp_path / "cache"))
    package = os.path.dirname(_timed.PACKAGE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "helper.py").write_text("FACTOR = 3.0\n")
    for name, columns, call in [
        ("slow", 64, CALL),
        ("fast", 512, CALL),
        ("twice", 512, CALL * 2),
        ("wrong", 512, LARGE),
        ("counts", 64, COUNTED),
        ("idle", 64, ""),
        ("fails", 64, "raise ValueError('on its own')\n"),
        ("dies", 64, "import os\nos._exit(3)\n"),
    ]:
        text = KERNEL.replace("COLUMNS", str(columns)) + call
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def ranked(capfd, *words):
    """Of programs by name, and options."""
    words = [word if word.startswith("--") else f"{word}.py" for word in words]
    status = main(["rank", *words, "--json"])
    report = json.loads(capfd.readouterr().out)  # what the programs print isn't in it
    timed = {p["program"]: p for p in report["programs"]}
    return status, timed, {f["program"]: f["diagnostics"] for f in report["failures"]}


def test_a_program_that_ranks_is_not_forked(folder, capfd, monkeypatch):
    """It may use Ray, whose threads a fork doesn't have."""

    def fork():
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)
    assert main(["rank", "fast.py"]) == 0
    assert "fast.py" in capfd.readouterr().out


def test_the_report_is_made_once(folder, capfd):
    for name in ("slow", "wrong", "fast"):
        file = Path(f"{name}.py")
        file.write_text(f"open('ran', 'a').write('x')\n{file.read_text()}")

    def runs():
        return Path("ran").stat().st_size

    status, timed, failures = ranked(capfd, "slow", "wrong", "fast")
    assert status == 1 and list(timed) == ["fast.py", "slow.py"]
    fast = timed["fast.py"]
    assert fast["low_us"] < fast["device_us"] < fast["high_us"]
    assert not fast["within_noise"]
    (wrong,) = failures["wrong.py"]
    assert wrong["code"] == "partition-limit"
    assert wrong["file"] == str(folder / "wrong.py") and wrong["line"] == 11
    assert runs() == 3

    # Programs and what they import decide whether they are timed again.
    assert main(["rank", "fast.py", "slow.py", "wrong.py"]) == 1
    text = capfd.readouterr().out
    assert runs() == 3 and text.index("fast.py") < text.index("slow.py")
    assert "wrong.py: not timed\n" in text and "[partition-limit]" in text
    with open("fast.py", "a") as file:
        file.write("# changed\n")
    assert main(["rank", "fast.py", "slow.py"]) == 0
    assert runs() == 4
    Path("helper.py").write_text("FACTOR = 2.0\n")
    assert main(["rank", "fast.py", "--platform", "trn1"]) == 0
    assert main(["rank", "slow.py", "--jobs", "1"]) == 0
    assert runs() == 6


@pytest.mark.slow
def test_programs_that_cannot_be_timed(folder, capfd):
    status, timed, failures = ranked(
        capfd, "twice", "fast", "counts", "idle", "fails", "dies", "absent"
    )
    assert status == 1 and list(timed) == ["fast.py", "twice.py"]
    fast, twice = timed["fast.py"], timed["twice.py"]
    assert (fast["launches"], twice["launches"], len(twice["kernels"])) == (1, 2, 1)
    for end in ("low_us", "device_us", "high_us"):
        assert twice[end] == pytest.approx(2 * fast[end])
    assert {name: [d.get("code") for d in found] for name, found in failures.items()} == {
        "counts.py": ["spec-contents"],
        "idle.py": ["rank-program"],
        "fails.py": ["program-raised"],
        "dies.py": ["program-ended"],
        "absent.py": ["rank-program"],
    }
    assert "counted" in failures["counts.py"][0]["message"]
    assert failures["fails.py"][0]["message"] == "on its own"
    assert "ended its process with status 3" in failures["dies.py"][0]["message"]
    assert main(["rank", "counts.py"]) == 1
    assert "  hint: Pass an array instead of a TensorSpec.\n" in capfd.readouterr().out


@pytest.mark.slow
def test_a_compiled_kernel_is_a_program(folder, capfd):
    code = KERNEL.replace("COLUMNS", "512") + (
        "scaled.compile(np.ones((128, 2048), np.float32)).save('fast.nki-dist')\n"
    )
    Path("saves.py").write_text(code)
    command = [sys.executable, "-m", "nki_dist", "run", "--host", "inprocess", "saves.py"]
    subprocess.run(command, check=True)
    assert main(["rank", "fast.nki-dist", "fast.py", "--no-cache", "--json"]) == 0
    one, other = json.loads(capfd.readouterr().out)["programs"]
    assert one["kernels"] == other["kernels"]
    assert not (folder / "cache").exists()


def program(name, low, device, high, launches=1):
    time = {"low_us": low, "device_us": device, "high_us": high}
    kernels = [{"kernel": "k", "launches": launches, **time}]
    return rank.part_of(Task(name), {"kernels": kernels, "diagnostics": []})


def test_sums_of_different_numbers_of_launches_are_told_apart():
    """A program that launches a faster kernel twice is last by sum, and first per launch."""
    made = [program("once.py", 9, 10, 12), program("twice.py", 7, 8, 9, launches=2)]
    report = rank.report_of(made)
    assert [p["program"] for p in report["programs"]] == ["once.py", "twice.py"]
    assert [p["device_us"] for p in report["programs"]] == [10, 16]
    assert [(p["launches"], p["launch_us"]) for p in report["programs"]] == [(1, 10), (2, 8)]
    head, one, two, order, band, _ = rank.text_of(report).splitlines()
    assert head.split() == ["device", "us", "band", "group", "program"]
    assert one.endswith("once.py") and two.endswith("(sum of 2 launches, 8.0 each)")
    assert "of different numbers of launches; per launch it is twice.py 8.0, once.py 10.0" in order
    assert band == f"a band {HELD}"
    equal = rank.report_of([made[0], program("b.py", 7, 8, 9)])
    assert "per launch" not in rank.text_of(equal)


def test_bands_that_overlap_are_within_noise():
    made = [program("a", 9, 10, 12), program("b", 11, 13, 14), program("c", 12.5, 14, 16)]
    report = rank.report_of(made[::-1])
    assert [p["program"] for p in report["programs"]] == ["a", "b", "c"]
    assert [p["within_noise"] for p in report["programs"]] == [False, True, False]


def test_groups_are_of_times_that_are_near_the_first_of_them():
    """Not near the one before: a long row of small steps isn't one group."""
    step = APART**0.4
    times = [100 * step**n for n in range(7)]
    assert groups(times) == [1, 1, 1, 2, 2, 2, 3]
    assert groups([1.0, APART]) == [1, 2] and groups([]) == []
    made = [program(f"{n}.py", t / 2, t, 2 * t) for n, t in enumerate(times)]
    report = rank.report_of(made)
    assert [p["group"] for p in report["programs"]] == groups(times)
    assert [p["within_noise"] for p in report["programs"]] == [False] + 6 * [True]
    order = rank.order_of(report)["order"]
    assert order == [["0.py", "1.py", "2.py"], ["3.py", "4.py", "5.py"], ["6.py"]]


@pytest.mark.parametrize("option", ["--jobs=0", "--timeout=-1", "--memory=0"])
def test_options_that_are_none(option, capsys):
    assert main(["rank", option, "k.py"]) == 1
    assert "must be positive" in capsys.readouterr().err


ENDS = {
    "greedy": "import numpy as np\nkept = [np.ones(1 << 22) for _ in range(64)]\n",
    "family": "import os, time\nos.fork()\nkept = b'x' * (180 << 20)\ntime.sleep(60)\n",
    "printing": "import sys\nwhile True: sys.stderr.write('x' * 4096)\n",
    "refused": "import numpy as np\nnp.ones(1 << 45)\n",
    "exits": "import sys\nsys.exit(3)\n",
    "leaves": "import os\nos._exit(0)\n",
    "aborts": "import faulthandler, os\nfaulthandler.disable()\nos.abort()\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "fails": "raise ValueError('on its own')\n",
}


def test_programs_end_in_every_way(folder):
    """All are results with a code, and none keeps the others from being timed.

    What ends by its time-out is below, with all that it has started.
    """
    for name, text in ENDS.items():
        Path(f"{name}.py").write_text(text)
    limits = ["--memory", "300", "--jobs", "4", "--no-cache", "--json"]
    # By a process that is small: forks share what it has.
    command = [sys.executable, "-m", "nki_dist", "rank", *limits, *map("{}.py".format, ENDS)]
    ran = subprocess.run([*command, "fast.py"], stdout=subprocess.PIPE, check=False)
    report = json.loads(ran.stdout)
    said = {f["program"].removesuffix(".py"): f["diagnostics"][0] for f in report["failures"]}
    assert {name: said[name]["code"] for name in ENDS} == {
        "greedy": "program-memory",
        "family": "program-memory",
        "printing": "program-memory",
        "refused": "program-memory",
        "exits": "program-ended",
        "leaves": "program-ended",
        "aborts": "program-ended",
        "killed": "program-ended",
        "fails": "program-raised",
    }
    assert said["greedy"]["numbers"]["got"] > said["greedy"]["numbers"]["allowed"] == 300 << 20
    assert "by signal 9" in said["killed"]["message"] and "by signal 6" in said["aborts"]["message"]
    (fast,) = report["programs"]
    assert ran.returncode == 1 and fast["kernels"][0]["kernel"] == "scaled"


def _gone(mark: str) -> bool:
    """Whether no process is left whose command has a text; those that were killed take a moment."""
    until = time.monotonic() + 20
    while _running(mark) and time.monotonic() < until:
        time.sleep(0.02)
    return not _running(mark)


def _running(mark: str) -> list[int]:
    """Processes whose command has a text."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


STARTS = """
import subprocess, sys, time
for session in (False, True):
    subprocess.Popen(["sleep", "61.{number}"], start_new_session=session)
open("started", "w").close()
time.sleep({seconds})
"""


@pytest.mark.parametrize("seconds", [0, 60])
def test_what_a_program_started_ends_with_it(folder, capfd, seconds):
    """One that is ended takes all along; of one that ends itself, its process group goes."""
    mark = f"61.{os.getpid()}{seconds}"
    text = STARTS.format(number=mark[3:], seconds=seconds)
    Path("starts.py").write_text(text if seconds else text.replace("(False, True)", "(False,)"))
    _, _, failures = ranked(capfd, "starts", "--timeout=5")
    (found,) = failures["starts.py"]
    assert found["code"] == ("program-timeout" if seconds else "rank-program")
    assert ("no end within 5 s; --timeout" in found["message"]) == (seconds > 0)
    assert Path("started").exists()
    assert _gone(mark)


def test_an_interrupt_ends_all_at_once(folder):
    mark = f"61.{os.getpid()}7"
    Path("starts.py").write_text(STARTS.format(number=mark[3:], seconds=60))
    command = [sys.executable, "-m", "nki_dist", "rank", "--no-cache", "starts.py", "starts.py"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    while len(_running(mark)) < 4:
        assert started.poll() is None
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGINT)
    assert started.wait() == 130 and started.stderr.read() == b""
    started.stderr.close()
    assert _gone(mark)


def test_results_come_as_lines(folder, capfd):
    """The last one has the order; settings are lines of a file."""
    text = Path("fast.py").read_text().replace("512", "int(sys.argv[1])")
    Path("varies.py").write_text(f"import sys\n{text}")
    Path("settings.txt").write_text("64\n512 'of two words'\n\nno\n")
    command = ["rank", "--no-cache", "--json-lines", "--arguments", "settings.txt"]
    assert main([*command, "varies.py", "fast.py"]) == 1
    *parts, last = map(json.loads, capfd.readouterr().out.splitlines())
    assert len(parts) == 6
    found = {p["program"]: p for p in parts}
    assert found["varies.py 512 'of two words'"]["device_us"] == found["fast.py 64"]["device_us"]
    assert found["varies.py no"]["diagnostics"][0]["code"] == "kernel-raised"
    assert last["failed"] == ["varies.py no"]
    first = last["order"][0]
    assert "varies.py 64" not in first and {"varies.py 512 'of two words'", "fast.py no"} <= {
        *first
    }
    assert sum(map(len, last["order"])) == 5 and last["apart"] == APART
    assert main(["rank", "--arguments", "absent.txt", "fast.py"]) == 1
    assert "--arguments absent.txt" in capfd.readouterr().err


TIMED = """
import json, sys
from contextlib import redirect_stdout
from nki_dist.cli.shared.timed import timed
with redirect_stdout(sys.stderr):
    found = timed(["again.py"], cached=json.loads(sys.argv[1]))
print(json.dumps(found))
"""


def test_kernels_of_the_same_instructions_are_timed_once(folder, capfd):
    """What the second would give isn't asked; the place of its lines doesn't matter."""
    text = Path("fast.py").read_text()
    Path("again.py").write_text(
        text.replace("def scaled", "def other").replace("scaled(", "other(")
    )
    _, timed, _ = ranked(capfd, "fast", "again", "slow", "--jobs=1", "--no-cache")
    one, two, slow = (timed[f"{n}.py"]["kernels"][0] for n in ("fast", "again", "slow"))
    assert two == {**one, "kernel": "other"} and slow["digest"] != one["digest"]
    known = {one["digest"]: [1.0, 2.0, 3.0]}
    found = json.loads(subprocess.check_output([sys.executable, "-c", TIMED, json.dumps(known)]))
    assert found["kernels"][0]["device_us"] == 1.0


def test_a_worker_has_a_process_of_its_own(folder, capfd):
    """What a program does to its process isn't seen by the next, and what it prints not at all."""
    text = """
import atexit, os, sys
assert sys.stdin.read() == "" and os.getsid(0) == os.getpid() and "NKI_LEFT" not in os.environ
os.environ["NKI_LEFT"] = sys.modules["left"] = "1"
os.chdir("/")
atexit.register(open, {!r}, "w")
print("seen", flush=True)
os.write(1, b"seen")
print("seen", file=sys.stderr)
"""
    ended = folder / "ended"
    for name in ("one", "two"):
        Path(f"{name}.py").write_text(Path("fast.py").read_text() + text.format(str(ended)))
    status, timed, _ = ranked(capfd, "one", "two", "--jobs=1")
    assert status == 0 and len(timed) == 2
    assert ended.exists()  # a program's own end comes to its end, too


def test_a_kept_report_with_other_contents_is_made_anew(folder, capfd):
    assert main(["rank", "fast.py"]) == 0
    said = capfd.readouterr().out
    (entry,) = Path(os.environ[_programs.CACHE_VARIABLE]).glob("*.json")
    entry.write_text(entry.read_text().replace('"kernels"', '"colonels"'))
    assert main(["rank", "fast.py"]) == 0
    assert capfd.readouterr().out == said
