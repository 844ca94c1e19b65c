"""Python's debugger in a debugged kernel: `breakpoint()`, stepping, breakpoints that pdb sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nki_dist

PROGRAM = """\
import numpy as np
import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def kernel(x):
    me = nl.program_id(0)
    tile = nl.load(x)
    {stop}
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0 + me)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.core_barrier(data=x, cores=[0, 1])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if me == 0:
        nl.store(out, tile)
    return out


print("RESULT", nki.debug(kernel[{cores}])(np.full((1, 2), 3.0, np.float32)))
"""


def scripted(tmp_path: Path, commands: list[str], stop: str, cores: int, *options: str) -> str:
    """What a program prints while its debugger is told these commands."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(stop=stop, cores=cores))
    ran = subprocess.run(
        [sys.executable, *options, str(file)],
        input="\n".join(commands) + "\n",
        env={
            **os.environ,
            "PYTHONPATH": str(Path(nki_dist.__file__).parent.parent),
            "PYTHONBREAKPOINT": "",  # Ray sets it to its own in processes that it has run in
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout


# Up to Python 3.12, breakpoint() stops at the line that follows.
ON = ["next"] if sys.version_info >= (3, 13) else []


def test_breakpoint_and_stepping_show_values(tmp_path):
    look = "p tile.numpy().tolist()"
    commands = [*ON, look, "next", look, "next", look, "p tile", "continue"]
    out = scripted(tmp_path, commands, "breakpoint()", 1)
    first, second, third = (
        out.index(text) for text in ("[[3.0, 3.0]]", "[[4.0, 4.0]]", "[[8.0, 8.0]]")
    )
    assert first < second < third
    assert "NkiTensor(shape=(1, 2), dtype=float32" in out
    assert "RESULT [[8. 8.]]" in out


def test_breakpoint_stops_in_every_core(tmp_path):
    commands = [*ON, "p me", "next", "p tile.numpy().tolist()", "continue"] * 2
    out = scripted(tmp_path, commands, "breakpoint()", 2)
    assert "[[4.0, 4.0]]" in out and "[[5.0, 5.0]]" in out
    assert "RESULT [[8. 8.]]" in out


def test_breakpoints_that_pdb_sets_hold_in_every_core(tmp_path):
    look = ["p (me, tile.numpy().tolist())", "continue"]
    commands = [f"break {tmp_path / 'program.py'}:13", "continue", *look, *look, "quit"]
    out = scripted(tmp_path, commands, "pass", 2, "-m", "pdb")
    assert "(0, [[4.0, 4.0]])" in out and "(1, [[5.0, 5.0]])" in out
    assert "RESULT [[8. 8.]]" in out
