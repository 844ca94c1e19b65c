"""`pytest -p nki_dist.pytest_plugin`, run on suites of its own in another process."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

from tests.programs import python

SUITE = """
import os
import numpy as np
import pytest
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def double(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    nisa.tensor_tensor(x, x, x, nl.add)
    nisa.dma_copy(out, x)
    return out

def test_single():
    assert os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn3"
    assert nisa.get_nc_version() == nisa.nc_version.gen4

def test_ranks(nki_world, nki_ranks):
    assert (nki_world.ranks, nki_world.lnc, nki_world.host_name) == (nki_ranks, 2, "inprocess")
    assert nki_world.checks.strict and nki_world.checks.races == "warn"
    assert nki_world.arch.name == "trn3"
    shards = [np.full((3, 5), rank, np.float32) for rank in range(nki_ranks)]
    outs = nki_world.run(double, nki.per_rank(shards))
    assert [out[2, 4] for out in outs] == [2 * rank for rank in range(nki_ranks)]

@pytest.mark.nki_world(ranks=3, lnc=1)
def test_marked(nki_world):
    assert (nki_world.ranks, nki_world.lnc) == (3, 1)
"""


def pytest_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "pytest", "-q", "-p", "nki_dist.pytest_plugin", *arguments, folder=folder)


def test_options_reach_tests_and_worlds(tmp_path):
    (tmp_path / "conftest.py").write_text("import nki.language\n")
    (tmp_path / "test_it.py").write_text(textwrap.dedent(SUITE))
    options = [
        "--nki-platform=trn3",
        "--nki-lnc=2",
        "--nki-host=inprocess",
        "--nki-check=strict,races=warn",
    ]
    done = pytest_run(tmp_path, "-vv", "--nki-ranks=1,4", *options)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    for name in ("test_ranks[ranks1]", "test_ranks[ranks4]", "test_marked[ranks3]"):
        assert name in done.stdout


def test_wrong_options_are_wrong_usage(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_nothing():\n    pass\n")
    for option, message in (
        ("--nki-platform=trn9", "unknown platform: got 'trn9'"),
        ("--nki-ranks=0,x", "--nki-ranks: '0,x'; allowed: positive numbers"),
        ("--nki-host=moon", "--nki-host"),
        ("--nki-check=lenient", "'lenient' is unknown; allowed: default"),
    ):
        done = pytest_run(tmp_path, option)
        assert done.returncode == 4 and message in done.stderr, done.stdout + done.stderr


def test_a_mark_takes_keywords(tmp_path):
    text = "import pytest\n@pytest.mark.nki_world(4)\ndef test_it(nki_world):\n    pass\n"
    (tmp_path / "test_it.py").write_text(text)
    done = pytest_run(tmp_path)
    assert "takes keywords only, got (4,)" in done.stdout + done.stderr
