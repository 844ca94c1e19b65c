"""all_gather_v and all_to_all_v: counts and displacements in metadata tensors."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist import errors
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import instructions
from tests.collectives import kernels as K
from tests.collectives.worlds import PerRank, mates, normal, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

GROUPS = [[3, 0, 5], [1, 4, 2]]
SLOT = 8


def metadata(rng, size, rows, gather):
    meta = np.full((rows, size), 99, np.uint32)
    meta[0] = rng.integers(0, SLOT + 1, size)
    meta[1] = rng.integers(0, 20 - SLOT, size)
    if rows == 4:
        meta[3] = rng.permutation(size) * SLOT
    return meta


def expected(xs, metas, rank, gather):
    """(dst, counts received) as NumPy has it."""
    group, place = mates(GROUPS, rank)
    dst, counts = np.full(len(group) * SLOT, 77, np.float32), []
    for n, other in enumerate(group):
        column = 0 if gather else place
        count, start = (int(metas[other][row, column]) for row in (0, 1))
        at = int(metas[rank][3, n]) if len(metas[rank]) == 4 else n * SLOT
        dst[at : at + count] = xs[other].reshape(-1)[start : start + count]
        counts.append(count)
    return dst, counts


@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize(("known", "displs"), [(False, False), (True, False), (False, True)])
def test_against_numpy(gather, where, lnc, known, displs):
    rng = np.random.default_rng(1)
    xs = normal(2, 6, (4, 5), np.float32)
    metas = PerRank(metadata(rng, 3, 4 if displs else 3, gather) for _ in range(6))
    outs = run(
        K.variable,
        6,
        xs,
        3 * SLOT,
        metas,
        ncc.ReplicaGroup(GROUPS),
        gather,
        where,
        known,
        displs,
        lnc=lnc,
    )
    for rank in range(6):
        want, counts = expected(xs, metas, rank, gather)
        for core in range(lnc):
            np.testing.assert_array_equal(outs[rank][0][core, 0], want)
            table = metas[rank].copy()
            if not known:
                table[2] = counts
            np.testing.assert_array_equal(outs[rank][1][core], table)


def test_a_fourth_row_may_be_there_unused():
    xs = normal(3, 2, (1, 6), np.float32)
    meta = np.array([[1, 2], [0, 1], [9, 9], [9, 9]], np.uint32)
    outs = run(K.variable, 2, xs, 6, meta, ncc.ReplicaGroup([[0, 1]]), False)
    np.testing.assert_array_equal(outs[0][0][0, 0], [xs[0][0, 0], 77, 77, xs[1][0, 0], 77, 77])
    np.testing.assert_array_equal(outs[1][0][0, 0, 3:5], xs[1][0, 1:3])


@pytest.mark.parametrize(
    ("counts", "starts", "displs", "message"),
    [
        ([7, 1], [0, 0], None, r"the chunk for rank 0 is elements \[0, 7\) of .* which has 6"),
        ([1, 2], [0, 5], None, r"the chunk for rank 1 is elements \[5, 7\)"),
        ([4, 1], [0, 0], None, r"the chunk from rank 0 is elements \[0, 4\) of its slot .* has 3"),
        ([2, 2], [0, 0], [5, 0], r"the chunk from rank 0 is elements \[5, 7\) of .* which has 6"),
    ],
)
def test_chunks_outside_are_refused(counts, starts, displs, message):
    meta = np.array([counts, starts, [0, 0]] + ([displs] if displs else []), np.uint32)
    xs = normal(4, 2, (2, 3), np.float32)
    with pytest.raises(errors.OutOfBoundsError, match=message) as caught:
        run(
            K.variable,
            2,
            xs,
            6,
            meta,
            ncc.ReplicaGroup([[0, 1]]),
            False,
            "hbm",
            False,
            displs is not None,
        )
    assert "kernels.py" in caught.value.location
    assert caught.value.instruction == "ncc.all_to_all_v"
    assert str(caught.value.core).startswith("rank ")


@pytest.mark.parametrize("gather", [True, False])
def test_programs_with_counts_can_be_sent(gather):
    """The counts live until the operation, also if nobody reads them afterwards."""

    def kernel(x, meta, group):
        src, dst = K.staged(x, "hbm"), K.hbm((1, 16), x.dtype)
        operation = ncc.all_gather_v if gather else ncc.all_to_all_v
        operation([src], [dst], group, K._metadata(meta, "hbm"))
        return K.published(dst)

    meta, group = np.zeros((3, 2), np.uint32), ncc.ReplicaGroup([[0, 1]])
    with nki.World(ranks=2, host="inprocess") as world:
        (program,) = world.compile(kernel, np.ones((4, 5), np.float32), meta, group).programs
    (at,) = [i for i in instructions(program.body) if INSTRUCTIONS[i.opcode].counts]
    counts = at[INSTRUCTIONS[at.opcode].counts].storage
    assert counts.first < at.ordinal == counts.last
    assert encode(decode(encode(program))) == encode(program)
