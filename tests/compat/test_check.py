"""`nki-dist check`, `run --json-errors` and `explain`, as commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nki_dist import codes
from nki_dist.cli import main
from tests.programs import python

from .test_run import ADD, write

SLOW = pytest.mark.slow  # starting Python and the package is most of their time
WRONG = (
    ADD
    + """
@nki.jit
def wrong(a):
    psum = nl.ndarray(a.shape, nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=psum, src=a)
    return a

a = np.arange(15, dtype=np.float32).reshape(3, 5)
"""
)
AT = WRONG.split("nisa.dma_copy(dst=psum")[0].count("\n") + 1  # the refused line


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "nki_dist", *arguments, folder=cwd)


def report(*arguments: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    done = command("check", "--json", *arguments, cwd=cwd)
    return done.returncode, json.loads(done.stdout)


def test_json_is_all_of_stdout_and_the_program_goes_on_after_a_mistake(tmp_path):
    text = WRONG + (
        "print('before')\nimport os; os.system('echo from a shell')\n"
        "b = wrong(a)\nprint(add(a, b).shape, sys.argv[1:])\n"
    )
    script = write(tmp_path, "p.py", text)
    done = command("check", script, "--json", "--json", "x", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert done.stderr == "before\nfrom a shell\n(3, 5) ['--json', 'x']\n"
    assert list(found) == ["version", "program", "ok", "kernels", "exception"]
    assert (found["version"], found["ok"], found["exception"]) == (1, False, None)
    wrong, fine = found["kernels"]
    assert (wrong["name"], wrong["ok"], wrong["file"]) == ("wrong", False, script)
    assert (fine["name"], fine["ok"], fine["diagnostics"]) == ("add", True, [])
    (diagnostic,) = wrong["diagnostics"]
    assert diagnostic["code"] == "memory-kind"
    assert (diagnostic["file"], diagnostic["line"]) == (script, AT)
    assert (diagnostic["type"], diagnostic["severity"]) == ("NkiValidationError", "error")
    assert (diagnostic["core"], diagnostic["instruction"]) == (0, "nisa.dma_copy")
    assert diagnostic["numbers"]["got"] == "psum" and "sbuf" in diagnostic["numbers"]["allowed"]
    assert diagnostic["hint"].startswith("write to a tile with buffer=nl.sbuf, then copy")


def test_status_and_text_of_a_program_without_mistakes(tmp_path):
    script = write(tmp_path, "p.py", ADD + "a = np.ones((3, 5), np.float32)\nadd(add(a, a), a)\n")
    done = command("check", "--lnc", "1", "--platform", "trn3", script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"add at {script}:9: ok\n1 kernel launched, 0 wrong\n"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os._exit(0)", "with status 0"),
        pytest.param("os.kill(os.getpid(), 9)", "by signal 9", marks=SLOW),
        pytest.param("ctypes.CDLL(None)._exit(0)", "with status 0", marks=SLOW),
        pytest.param("os.execv('/bin/true', ['true'])", "with status 0", marks=SLOW),
    ],
)
def test_a_program_that_ends_the_process_has_no_answer(tmp_path, end, how):
    script = write(tmp_path, "p.py", WRONG + f"import ctypes, os\nadd(a, a)\n{end}\n")
    status, found = report(script, cwd=tmp_path)
    assert (status, found["ok"], found["kernels"]) == (1, False, [])
    assert found["exception"]["code"] == "program-ended"
    assert found["exception"]["message"].endswith(how)


@pytest.mark.parametrize("name", ["check", "profile", "record", "drift", "bench"])
def test_no_answer_is_said_and_is_no_success(tmp_path, name):
    script = write(tmp_path, "p.py", "import os; os._exit(0)\n")
    done = command(name, script, cwd=tmp_path)
    assert done.returncode == 1
    assert "ended the process before there was an answer" in done.stdout + done.stderr


@SLOW
def test_the_answer_counts_also_if_the_program_ends_the_process_then(tmp_path):
    text = "import atexit, os; atexit.register(os._exit, 0)\nraise KeyError('here')\n"
    status, found = report(write(tmp_path, "p.py", text), cwd=tmp_path)
    assert (status, found["exception"]["message"]) == (1, "'here'")


@SLOW
def test_signals_reach_the_program(tmp_path):
    text = (
        "import signal\ntry:\n    print('here', flush=True)\n    signal.pause()\n"
        "finally:\n    print('left')\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-m", "nki_dist", "check", write(tmp_path, "p.py", text)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None and started.stdout.readline() == "here\n"
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=60)
    assert (started.returncode, said) == (130, "left\n")


@SLOW
def test_a_module_and_its_kernel_without_launches(tmp_path):
    write(tmp_path, "some/__init__.py", "")
    write(tmp_path, "some/prog.py", "import nki\nassert __name__ == '__main__'\n")
    done = command("check", "-m", "some.prog", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "no kernel was launched\n")


@pytest.mark.parametrize(
    ("end", "status", "type_", "after", "line"),
    [
        ("assert add(a, a)[0, 1] == 2", 0, "AssertionError", True, 1),
        ("sys.exit(3)", 1, "SystemExit", False, 1),
        pytest.param("assert a[0, 1] == 2", 1, "AssertionError", False, 1, marks=SLOW),
        pytest.param("add(a, a)\nsys.exit(3)", 0, "SystemExit", True, 2, marks=SLOW),
        pytest.param("nki.no_such_name", 1, "AttributeError", False, 1, marks=SLOW),
    ],
)
def test_the_programs_own_end_is_told_apart(tmp_path, end, status, type_, after, line):
    script = write(tmp_path, "p.py", WRONG + end + "\n")
    returned, found = report(script, cwd=tmp_path)
    exception = found["exception"]
    assert (returned, found["ok"]) == (status, status == 0)
    assert (exception["type"], exception["after_placeholders"]) == (type_, after)
    assert (exception["file"], exception["line"]) == (script, WRONG.count("\n") + line)
    assert all(k["ok"] for k in found["kernels"])


@SLOW
def test_an_error_of_ours_outside_kernels_is_the_programs(tmp_path):
    text = "import nki_dist\nnki_dist.World(ranks=0)\n"
    status, found = report(write(tmp_path, "p.py", text), cwd=tmp_path)
    exception = found["exception"]
    assert (status, exception["code"], exception["numbers"]) == (
        1,
        "world-option",
        {"got": 0, "least": 1, "most": 65_536},
    )


@SLOW
def test_a_kernel_in_a_thread_that_outlives_the_program_is_reported(tmp_path):
    text = WRONG + (
        "import threading, time\n"
        "ready = threading.Event()\n"
        "threading.Thread(target=lambda: (ready.wait(), wrong(a))).start()\n"
        "ready.set()\n"
    )
    status, found = report(write(tmp_path, "p.py", text), cwd=tmp_path)
    assert (status, [k["ok"] for k in found["kernels"]]) == (1, [False])


@SLOW
def test_wrong_usage(tmp_path):
    assert command("check", cwd=tmp_path).returncode == 2
    done = command("check", "missing.py", cwd=tmp_path)
    assert done.returncode == 2 and "can't open file" in done.stderr
    status, found = report("--platform", "trn9", "x.py", cwd=tmp_path)
    assert (status, found["exception"]["code"]) == (1, "platform-unknown")


def test_json_errors_of_a_program_that_runs(tmp_path):
    text = WRONG + (
        "from nki_dist import errors\nimport warnings\n"
        "warnings.warn(errors.RaceWarning('two stores', location='k.py:3'))\n"
        "warnings.warn('of another kind')\n"
        "print(add(a, a)[0, 1])\nwrong(a)\n"
    )
    script = write(tmp_path, "p.py", text)
    arguments = ("--host", "inprocess", script)
    done = command("run", "--json-errors", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "2.0\n")
    lines = done.stderr.splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    assert (first["severity"], first["code"], first["line"]) == ("warning", "race", 3)
    assert "of another kind" in lines[1]
    assert (last["severity"], last["code"], last["line"]) == ("error", "memory-kind", AT)
    assert "Traceback" not in done.stderr
    assert "Traceback" in command("run", *arguments, cwd=tmp_path).stderr


@SLOW
@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("import threading\nt = threading.Thread(target=wrong, args=(a,))\nt.start()", "memory"),
        ("wrong[9](a)", "lnc-range"),
    ],
)
def test_json_errors_of_threads_and_launches(tmp_path, end, shown):
    script = write(tmp_path, "p.py", WRONG + end + "\n")
    done = command("run", "--host", "inprocess", "--json-errors", script, cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["code"].startswith(shown)


@SLOW
def test_other_exceptions_look_as_ever(tmp_path):
    script = write(tmp_path, "p.py", "1 / 0\n")
    plain = command("run", script, cwd=tmp_path)
    done = command("run", "--json-errors", script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    missing = command("run", "--json-errors", "--platform", "trn9", script, cwd=tmp_path)
    assert (missing.returncode, json.loads(missing.stderr)["code"]) == (1, "platform-unknown")


def test_explain(capsys):
    assert main(["explain", "[psum-bank]", "hbm-full"]) == 0
    shown = capsys.readouterr().out
    assert codes.CODES["psum-bank"].hint in shown
    assert "NCC_EOOM001, https://" in shown and "error-codes/EOOM001.html" in shown
    assert main(["explain", "psum-bnk"]) == 2
    assert "psum-bank" in capsys.readouterr().err
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(codes.CODES)
