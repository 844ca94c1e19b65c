"""`nki-dist run`: a program can't tell it from python, except that nki is the simulator."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.programs import python

ADD = """
import sys
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    y = nl.load(b)
    nisa.tensor_tensor(x, x, y, nl.add)
    nisa.dma_copy(out, x)
    return out
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "nki_dist", "run", *arguments, folder=cwd)


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_a_script_runs_as_main_with_its_arguments_and_its_directory_on_the_path(tmp_path):
    write(tmp_path, "sub/helper.py", ADD)
    script = write(
        tmp_path,
        "sub/main.py",
        """
        import os
        from helper import *
        assert __name__ == "__main__" and os.path.isabs(__file__)
        a = np.arange(15, dtype=np.float32).reshape(3, 5)
        assert (add(a, a) == 2 * a).all()
        print(sys.argv[1:], os.environ["NEURON_LOGICAL_NC_CONFIG"])
        sys.exit(7)
        """,
    )
    done = run("--host", "inprocess", "--lnc", "2", script, "--lnc", "x", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "['--lnc', 'x'] 2\n"


def test_a_mistake_is_shown_as_python_shows_it_and_names_the_line(tmp_path):
    text = ADD + "a = np.zeros((3, 5), np.float32)\nadd(a, np.zeros((3, 4), np.float32))\n"
    script = write(tmp_path, "wrong.py", text)
    done = run("--host", "inprocess", script, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{script}", line 17, in <module>'
    assert f"{script}:13" in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("def f(:\n", "SyntaxError"),
        ("raise SystemExit('stop')\n", "stop"),
        ("import no_such_module_here\n", "ModuleNotFoundError"),
    ],
)
def test_exit_status_of_programs_that_fail(tmp_path, text, shown):
    script = write(tmp_path, "bad.py", text)
    done = run(script, cwd=tmp_path)
    alone = python(script)
    assert (done.returncode, shown in done.stderr) == (alone.returncode, True)
    assert done.stderr == alone.stderr


def test_a_missing_script_is_wrong_usage(tmp_path):
    done = run("nowhere.py", cwd=tmp_path)
    assert done.returncode == 2 and "No such file" in done.stderr


def test_a_module_runs_with_m_and_the_platform_reaches_it(tmp_path):
    write(tmp_path, "package/__init__.py", "")
    write(
        tmp_path,
        "package/tool.py",
        "import sys, nki.isa as nisa\nprint(__name__, nisa.get_nc_version().name, sys.argv[1:])\n",
    )
    done = run("--platform", "trn3", "-m", "package.tool", "x", cwd=tmp_path)
    assert done.stdout == "__main__ gen4 ['x']\n", done.stderr


def test_a_program_for_the_xla_device_runs_on_the_cpu(tmp_path):
    pytest.importorskip("torch")
    text = (
        ADD
        + """
import torch
import torch_xla
from torch_xla.core import xla_model as xm
from torch_neuronx import nki_jit

assert nki_jit is nki.jit
x = torch.arange(6.0).reshape(2, 3).to(device=xm.xla_device())
y = add(x, x.to(torch_xla.device()))
xm.mark_step()
print(y.cpu().tolist())
"""
    )
    done = run("--host", "inprocess", write(tmp_path, "model.py", text), cwd=tmp_path)
    assert done.stdout == "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]\n", done.stderr


@pytest.mark.parametrize("release", ["0.6", "0.7"])
def test_release_says_what_kernels_are_held_to(tmp_path, release):
    program = write(tmp_path, "release.py", "import os; print(os.environ['NKI_DIST_RELEASE'])")
    done = run("--release", release, program, cwd=tmp_path)
    assert (done.stdout, done.returncode) == (f"{release}\n", 0)


def test_a_release_that_there_is_not_is_refused(tmp_path):
    program = write(tmp_path, "release.py", "print('started')")
    done = run("--release", "0.5", program, cwd=tmp_path)
    assert done.returncode == 1 and "started" not in done.stdout
    assert "release='0.5'; allowed: " in done.stderr and "[release-unknown]" in done.stderr
