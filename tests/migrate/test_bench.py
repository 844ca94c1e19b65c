"""bench.migrate counts its share itself, and has a bar."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path

import pytest

from bench.migrate.__main__ import APART, DOCS, OTHER, SAMPLES, Row, shares, table
from bench.migrate.replay import instances
from nki_dist.language.grid import Nc, SpmdDim
from nki_dist.migrate import migrate
from tests.programs import said

ROOT = Path(__file__).parents[2]


def rows(*outcomes, group=SAMPLES, beta1=True):
    return [Row(group, f"{n}.py", "f", beta1, outcome) for n, outcome in enumerate(outcomes)]


def test_shares_and_their_bar():
    found = rows("same", "same", "same", APART, OTHER) + rows("same", group=DOCS, beta1=False)
    assert [(s.same, s.apart, s.all) for s in shares(found)] == [(3, 1, 5), (1, 0, 1), (4, 1, 6)]
    assert all(s.met for s in shares(found))
    assert "all: 5 of 6 the same without a hand (83%, bar 80%)" in table(found)
    assert [s.met for s in shares(found + rows("out of time"))] == [False, True, False]
    assert [s.met for s in shares(rows("same", beta1=False))] == [True, True, True], "0.6's"


@pytest.mark.parametrize(
    "grid, sizes",
    [
        (None, None),
        (2, None),
        ((2, 4), (2, 4)),
        ((SpmdDim((3,)),), (3,)),
        ((SpmdDim((2, Nc(2))), 4), None),
        ((Nc(2),), None),
    ],
)
def test_recorded_grids(grid, sizes):
    assert instances(grid) == sizes


def ran(*command):
    done = said("-m", *command, folder=ROOT, NKI_DIST_HOST="inprocess")
    return done.strip()


@pytest.mark.slow
def test_a_launch_that_is_recorded_and_replayed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import neuronxcc.nki as nki
        import neuronxcc.nki.isa as nisa
        import neuronxcc.nki.language as nl
        import numpy as np


        @nki.jit
        def product(a, b):
            out = nl.ndarray((37, 19), dtype=nl.float32, buffer=nl.shared_hbm)
            total = nl.zeros((37, 19), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(4):
                left = nl.load(a[nl.ds(k * 128, 128), :])
                total += nisa.nc_matmul(left, nl.load(b[nl.ds(k * 128, 128), :]))
            nl.store(out, total)
            return out


        rng = np.random.default_rng(0)
        product(*(rng.standard_normal((512, n), np.float32) for n in (37, 19)))
        """)
    )
    records, made = tmp_path / "records", tmp_path / "made"
    records.mkdir()
    made.mkdir()
    ran("bench.migrate.record", "script", program, records)
    (record,) = records.iterdir()
    done = migrate(program.read_text())
    assert not done.decisions
    (made / program.name).write_text(done.text)
    # Whether merging rounds otherwise depends on BLAS; one by one is what Beta 1 does.
    assert ran("bench.migrate.replay", record, made) in ("same", OTHER)
    assert ran("bench.migrate.replay", record, made, "apart") == "same"
    row = pickle.loads(record.read_bytes())
    row["out"][0][0, 0] += 1
    record.write_bytes(pickle.dumps(row))
    assert ran("bench.migrate.replay", record, made, "apart") == OTHER
