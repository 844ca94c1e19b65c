"""`nki-dist rank`: the order, what can't be timed, and which reports are found again."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nki_dist.cli import main, rank
from nki_dist.cli.shared import programs as _programs
from nki_dist.cli.shared import timed as _timed
from nki_dist.cli.shared.programs import Programs, Task
from nki_dist.timing.band import HELD

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


def ranked(capfd, *names):
    status = main(["rank", *(f"{name}.py" for name in names), "--json"])
    report = json.loads(capfd.readouterr().out)  # what the programs print isn't in it
    timed = {p["program"]: p for p in report["programs"]}
    return status, timed, {f["program"]: f["diagnostics"] for f in report["failures"]}


def test_the_report_is_made_once(folder, capfd):
    status, timed, failures = ranked(capfd, "slow", "wrong", "fast")
    assert status == 1 and list(timed) == ["fast.py", "slow.py"]
    fast = timed["fast.py"]
    assert fast["low_us"] < fast["device_us"] < fast["high_us"]
    assert not fast["within_noise"]
    (wrong,) = failures["wrong.py"]
    assert wrong["code"] == "partition-limit"
    assert wrong["file"] == str(folder / "wrong.py") and wrong["line"] == 10

    # Programs and what they import decide whether they are timed again.
    runs = []
    before = Programs._run

    def run(self, task):
        runs.append(task.program)
        return before(self, task)

    patch = pytest.MonkeyPatch()
    patch.setattr(Programs, "_run", run)
    try:
        assert main(["rank", "fast.py", "slow.py", "wrong.py"]) == 1
        text = capfd.readouterr().out
        assert runs == [] and text.index("fast.py") < text.index("slow.py")
        assert "wrong.py: not timed\n" in text and "[partition-limit]" in text
        with open("fast.py", "a") as file:
            file.write("# changed\n")
        assert main(["rank", "fast.py", "slow.py"]) == 0
        assert runs == ["fast.py"]
        Path("helper.py").write_text("FACTOR = 2.0\n")
        assert main(["rank", "fast.py", "--platform", "trn1"]) == 0
        assert main(["rank", "slow.py", "--jobs", "1"]) == 0
        assert runs == ["fast.py", "fast.py", "slow.py"]
    finally:
        patch.undo()


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
        "fails.py": [None],
        "dies.py": ["rank-program"],
        "absent.py": ["rank-program"],
    }
    assert "counted" in failures["counts.py"][0]["message"]
    assert failures["fails.py"][0]["message"] == "on its own"
    assert "ended with status 3" in failures["dies.py"][0]["message"]
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
    return name, {"kernels": [{"kernel": "k", "launches": launches, **time}], "diagnostics": []}


def test_sums_of_different_numbers_of_launches_are_told_apart():
    """A program that launches a faster kernel twice is last by sum, and first per launch."""
    made = [program("once.py", 9, 10, 12), program("twice.py", 7, 8, 9, launches=2)]
    report = rank.report_of(*zip(*made, strict=True))
    assert [p["program"] for p in report["programs"]] == ["once.py", "twice.py"]
    assert [p["device_us"] for p in report["programs"]] == [10, 16]
    assert [(p["launches"], p["launch_us"]) for p in report["programs"]] == [(1, 10), (2, 8)]
    head, one, two, order, band = rank._text(report).splitlines()
    assert head.split() == ["device", "us", "band", "program"]
    assert one.endswith("once.py") and two.endswith("(sum of 2 launches, 8.0 each)")
    assert "of different numbers of launches; per launch it is twice.py 8.0, once.py 10.0" in order
    assert band == f"a band {HELD}"
    alike = rank.report_of(*zip(made[0], program("b.py", 7, 8, 9), strict=True))
    assert "per launch" not in rank._text(alike)


def test_bands_that_overlap_are_within_noise():
    made = [program("a", 9, 10, 12), program("b", 11, 13, 14), program("c", 12.5, 14, 16)]
    report = rank.report_of(*zip(*made[::-1], strict=True))
    assert [p["program"] for p in report["programs"]] == ["a", "b", "c"]
    assert [p["within_noise"] for p in report["programs"]] == [False, True, False]


@pytest.mark.parametrize("option", ["--jobs=0", "--timeout=-1"])
def test_options_that_are_none(option, capsys):
    assert main(["rank", option, "k.py"]) == 1
    assert "must be positive" in capsys.readouterr().err


def test_a_program_without_end_is_given_up(folder):
    Path("endless.py").write_text("import time\nwhile True: time.sleep(1)\n")
    (found,) = Programs([], 1, 1.0, cache=False).reports([Task("endless.py")])
    (diagnostic,) = found["diagnostics"]
    assert "made no end within 1 s" in diagnostic["message"]


def test_a_kept_report_with_other_contents_is_made_anew(folder, capfd):
    assert main(["rank", "fast.py"]) == 0
    said = capfd.readouterr().out
    (entry,) = Path(os.environ[_programs.CACHE_VARIABLE]).glob("*.json")
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "kernels": [{"kernel": 3}]}))
    assert main(["rank", "fast.py"]) == 0
    assert capfd.readouterr().out == said


def test_a_file_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path, capsys):
    """A limit on the size of files stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        _programs._keep(tmp_path / "kept" / "entry.json", {"kernels": [], "files": {}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "kept").iterdir()) == []
    assert "reports aren't kept" in capsys.readouterr().err


def test_damaged_reports_are_made_anew(tmp_path):
    entry = tmp_path / "entry.json"
    file = tmp_path / "read"
    file.write_text("1")
    good = {"kernels": [], "diagnostics": [], "files": _timed.digests([str(file)], set())}
    timed = {"kernel": "k", "launches": 1, "device_us": 1.0, "low_us": 1.0, "high_us": 2.0}
    wrong: list[Any] = [
        {**good, "kernels": 3},
        {**good, "kernels": [3]},
        {**good, "kernels": [{**timed, "device_us": "x"}]},
        {**good, "kernels": [{**timed, "low_us": float("nan")}]},
        {**good, "kernels": [{**timed, "launches": None}]},
        {**good, "diagnostics": {"a": 1}},
        {**good, "diagnostics": [{"type": "X"}]},
        {name: value for name, value in good.items() if name != "kernels"},
    ]
    texts = [json.dumps(report) for report in wrong]
    for text in ("", "{", "[]", json.dumps({"files": {}}), json.dumps({"files": 3}), *texts):
        entry.write_text(text)
        assert _programs._kept(entry) is None
    entry.write_text(json.dumps(good))
    assert _programs._kept(entry) == good
    file.write_text("2")
    assert _programs._kept(entry) is None
    file.unlink()
    assert _programs._kept(entry) is None
