"""Instructions that leave part of their destination alone: what they leave is poisoned first."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.compiler.compiling import compiled, named
from tests.isa.helpers import run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning")

TABLE = ((40, 24), np.float32)
ROWS = ((16, 1), np.int32)


def _gather(mode, kind):
    def kernel(table, rows):
        index = nl.ndarray((16, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=index, src=rows)
        got = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.sbuf, name="got")
        if kind == "vector":
            src = table.ap([[24, 16], [1, 24]], vector_offset=index)
        elif kind == "scalar":
            src = table.ap([[24, 16], [1, 24]], scalar_offset=index[0:1, 0:1])
        else:
            src = table[0:16]
        nisa.dma_copy(dst=got, src=src, oob_mode=mode)
        out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=got)
        return out

    return kernel


@pytest.mark.parametrize("kind", ["vector", "scalar"])
def test_a_copy_that_may_skip_writes_in_part(kind: str) -> None:
    program = compiled(_gather(nisa.oob_mode.skip, kind), TABLE, ROWS).programs[0]
    assert named(program.storages, "got").number in program.facts["poison"]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [(nisa.oob_mode.error, "vector"), (nisa.oob_mode.error, "scalar"), (nisa.oob_mode.skip, "")],
)
def test_a_copy_that_cant_skip_writes_everything(mode, kind: str) -> None:
    program = compiled(_gather(mode, kind), TABLE, ROWS).programs[0]
    assert not program.facts["poison"]


def test_skipped_rows_stay_poisoned_at_every_launch() -> None:
    table = np.arange(960, dtype=np.float32).reshape(40, 24)
    rows = np.arange(16, dtype=np.int32).reshape(16, 1) * 3
    skipped = rows[:, 0] >= 40
    assert skipped.any()
    for _ in range(2):
        got = run(_gather(nisa.oob_mode.skip, "vector"), table, rows)
        assert np.isnan(got[skipped]).all()
        np.testing.assert_array_equal(got[~skipped], table[rows[~skipped, 0]])


@pytest.mark.parametrize(
    ("kept", "partitions", "whole"), [(7, 8, False), (8, 8, True), (40, 64, False)]
)
def test_a_shuffle_leaves_the_partitions_of_which_its_mask_says_so(kept, partitions, whole) -> None:
    def kernel(a):
        mask = [n // 2 for n in range(32)]
        mask[kept % 32] = 255
        moved = nl.ndarray((partitions, 24), dtype=nl.float32, buffer=nl.sbuf, name="moved")
        nisa.nc_stream_shuffle(dst=moved, src=nl.load(a[0:partitions]), shuffle_mask=mask)
        out = nl.ndarray((partitions, 24), dtype=nl.float32, buffer=nl.shared_hbm)
        rest = [n for n in range(partitions) if n % 32 != kept % 32]
        for n in rest:
            nisa.dma_copy(dst=out[n : n + 1], src=moved[n : n + 1])
        return out

    found = compiled(kernel, ((64, 24), np.float32))
    (program,) = found.programs
    assert (named(program.storages, "moved").number in program.facts["poison"]) is not whole
    assert found.undecided is not whole
