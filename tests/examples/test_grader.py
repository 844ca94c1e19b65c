"""examples/grader.py: its own kernel is right; one that is handed in is judged, as data too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.scripts import run_script

WRONG = """
import nki_dist as nki
import nki_dist.language as nl


@nki.jit
def softmax(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(x.shape[0] // 128):
        rows = slice(n * 128, n * 128 + 128)
        nl.store(out[rows], nl.softmax(nl.load(x[rows]), axis=1))
    return out
"""


def test_its_own_kernel_passes() -> None:
    done = run_script("../grader.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("softmax on trn2: right")


@pytest.mark.slow
def test_a_kernel_that_forgets_the_tail_fails(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    done = run_script("../grader.py", str(tmp_path / "wrong.py"), "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    wrong = {r["case"] for r in found["results"] if not r["ok"]}
    assert "x=257x200" in wrong and "x=256x200" not in wrong
