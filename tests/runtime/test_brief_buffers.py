"""Host buffers that cores of a process share: nothing in them is alive while a core waits."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfMemoryError
from nki_dist.linking.memory import places
from tests.compiler.compiling import compiled, named

KIB = 1024
SHAPE = (128, 64)  # 32 KiB of float32


def around_a_wait(x, group):
    """One tile is alive while ranks meet, one is gone by then, one comes later."""
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="kept")
    before = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="before")
    nisa.dma_copy(dst=kept, src=x)
    nisa.tensor_tensor(dst=before, data1=kept, data2=kept, op=nl.add)
    nisa.dma_copy(dst=mine, src=before)
    ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
    after = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="after")
    nisa.dma_copy(dst=after, src=total)
    nisa.dma_copy(dst=out[0], src=kept)
    nisa.dma_copy(dst=out[1], src=after)
    return out


def in_a_loop(x):
    """Rounds of a loop wait in their middle."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    outside = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="outside")
    nisa.dma_copy(dst=outside, src=x)
    for _ in nl.dynamic_range(3):
        first = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="first")
        nisa.tensor_copy(dst=first, src=outside)
        nisa.tensor_copy(dst=outside, src=first)
        nisa.core_barrier(data=out, cores=(0, 1))
        second = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="second")
        nisa.memset(dst=second, value=1.0)
    nisa.dma_copy(dst=out, src=x)
    return out


def buffers(program, found):
    """Names of local storages, each with the number of its buffer."""
    for storage, part in zip(found.numbers, found.where, strict=True):
        yield program.storages[storage].name, found.parts[part][0]


def brief(program):
    found = places(program)
    return {name: found.brief[number] for name, number in buffers(program, found) if name}


def test_what_is_alive_while_its_core_waits_is_its_own():
    group = ncc.ReplicaGroup([[0]])
    program = compiled(lambda x: around_a_wait(x, group), (SHAPE, np.float32)).programs[0]
    assert brief(program) == {"kept": False, "before": True, "after": True}
    numbers = dict(buffers(program, places(program)))
    assert numbers["before"] == numbers["after"] != numbers["kept"]


def test_what_comes_from_outside_a_loop_lives_through_its_waits():
    for program in compiled(in_a_loop, (SHAPE, np.float32), lnc=2).programs:
        assert brief(program) == {"outside": False, "first": True, "second": True}


def test_an_operand_of_what_waits_is_the_core_s_own():
    def exchanged(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="mine")
        theirs = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="theirs")
        nisa.dma_copy(dst=mine, src=x)
        other = 1 - nl.program_id(0)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=theirs)
        return out

    program = compiled(exchanged, (SHAPE, np.float32), lnc=2).programs[0]
    assert named(program.storages, "mine").last == named(program.storages, "theirs").first
    assert brief(program) == {"mine": False, "theirs": False}


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_values_of_cores_that_share_buffers(host):
    rng = np.random.default_rng(3)
    xs = [rng.integers(-9, 9, SHAPE).astype(np.float32) for _ in range(4)]
    with nki.World(4, host=host, cores_per_actor=4, platform="trn2") as world:
        outs = world.run(around_a_wait, nki.per_rank(xs), ncc.ReplicaGroup([[0, 1, 2, 3]]))
    for x, out in zip(xs, outs):
        np.testing.assert_array_equal(out[0], x)
        np.testing.assert_array_equal(out[1], 2 * np.sum(xs, axis=0))


def test_brief_tiles_are_counted_once():
    ranks, tile = 3, 32 * KIB
    xs = [np.ones(SHAPE, np.float32) for _ in range(ranks)]
    need = ranks * (5 * tile + tile + 2 * tile) + tile  # stacks, `kept`, results; `before`, `after`
    arguments = (around_a_wait, nki.per_rank(xs), ncc.ReplicaGroup([[0, 1, 2]]))
    with nki.World(ranks, host="inprocess", platform="trn2", memory=need) as world:
        np.testing.assert_array_equal(world.run(*arguments)[2][1], 6 * xs[0])
    with (
        nki.World(ranks, host="inprocess", platform="trn2", memory=need - 1) as world,
        pytest.raises(OutOfMemoryError, match=f"needs {need} bytes.* {(ranks + 1) * tile} for til"),
    ):
        world.run(*arguments)


def test_brief_tiles_of_different_programs_are_counted_by_size():
    """The pool keeps buffers of every size that a core asked for."""

    def kernel(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        for n in range(1 if core == 0 else 3):  # core 0 has one tile, core 1 three of a third
            part = slice(0, 96) if core == 0 else slice(32 * n, 32 * n + 32)
            nl.store(out[core, part], nl.load(x[part]))
        return out

    x, tile = np.arange(96 * 64, dtype=np.float32).reshape(96, 64), 24 * KIB
    with (
        nki.World(lnc=2, host="inprocess", platform="trn2", memory=1) as world,
        pytest.raises(OutOfMemoryError, match=f" {tile + tile // 3} for tiles"),
    ):
        world.run(nki.jit(kernel), x)
