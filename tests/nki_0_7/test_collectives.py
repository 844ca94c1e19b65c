"""Prepare and trigger of all_to_all_v and all_gather_v; collectives return instructions.

From the pages nki.collectives.all_to_all_v_prepare, _trigger, all_gather_v_prepare, _trigger and
all_to_all of SDK 2.33.
"""

from itertools import pairwise

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompileError, NkiValidationError
from tests.collectives import kernels as C
from tests.isa.helpers import numbers

GROUP = ncc.ReplicaGroup([[0, 2, 3, 1]])
FOUR = range(4)


def split(gather):
    """(the undivided operation, its prepare, its trigger)."""
    name = "all_gather_v" if gather else "all_to_all_v"
    return tuple(getattr(ncc, name + part) for part in ("", "_prepare", "_trigger"))


@nki.jit
def undivided(x, meta, gather, where, known):
    return C.variable.fn(x, 32, meta, GROUP, gather, where, known)


@nki.jit
def divided(x, meta, gather, where, known):
    """As `undivided`; src, dst and the metadata are written between prepare and trigger."""
    _, prepare, trigger = split(gather)
    src, dst = C.hbm(x.shape, x.dtype), C.hbm((1, 32), x.dtype)
    table = C._metadata(meta, where)
    prepared = prepare([src], [dst], GROUP, table, recv_counts_known=known, name="prepare")
    assert isinstance(prepared, nisa.NkiInstruction)
    filled = nisa.dma_copy(dst=src, src=x)
    fill = C.sbuf((1, 32), x.dtype)
    nisa.memset(dst=fill, value=77)
    nisa.dma_copy(dst=dst, src=fill)
    lost = C.sbuf((1, 2, meta.shape[1]), nl.uint32)
    nisa.memset(dst=lost, value=1000)
    if where == "hbm" and nl.num_programs(0) == 2:  # the other core's prepare reads it, too
        nisa.core_barrier(data=table, cores=(0, 1))
    rows = table[..., 0:2, :]
    nisa.dma_copy(dst=rows, src=lost)
    done = trigger(prepared, name="trigger")
    assert isinstance(done, nisa.NkiInstruction)
    done.depends_on(prepared, filled, kind=nisa.dependency.runtime)
    cores, me = nl.num_programs(0), nl.program_id(0)
    counts = C.hbm((cores, *meta.shape), meta.dtype)
    nisa.dma_copy(dst=counts[me], src=table)
    return C.published(dst), counts


@pytest.mark.parametrize("host", ["inprocess", "debug"])
@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("gather", [False, True])
def test_the_same_as_in_one_call(gather, known, where, lnc, host):
    """Prepare's rows count, not those that are there when trigger runs; counts come back."""
    rng = np.random.default_rng(3)
    xs = [numbers(10 + r, (5, 6)) for r in FOUR]
    metas = [
        np.stack([rng.integers(0, 8, 4), rng.integers(0, 22, 4), [9] * 4]).astype(np.uint32)
        for _ in FOUR
    ]
    args = (nki.per_rank(xs), nki.per_rank(metas), gather, where, known)
    with nki.World(ranks=4, lnc=lnc, host=host) as world:
        one, two = world.run(undivided, *args), world.run(divided, *args)
    for (want, rows), (got, now) in zip(one, two):
        assert np.array_equal(got, want)
        assert np.array_equal(now[:, 2], rows[:, 2])  # counts received
        assert (now[:, :2] == 1000).all()


def compiled(body, platform="trn2", release=None):
    """A kernel of two cores with `body(src, dst, metadata)` in it, compiled."""

    def kernel(x, meta):
        src, dst = C.hbm(x.shape, x.dtype), C.hbm(x.shape, x.dtype)
        nisa.dma_copy(dst=src, src=x)
        body(src, dst, C._metadata(meta, "hbm"))
        return dst

    shapes = (np.ones((1, 8), np.float32), np.ones((3, 4), np.uint32))
    with nki.World(ranks=4, host="inprocess", platform=platform, release=release) as world:
        return world.compile(nki.jit(kernel), *shapes)


def prepare(src, dst, meta, gather=False, **options):
    return split(gather)[1]([src], [dst], GROUP, meta, **options)


def twice(src, dst, meta):
    prepare(src, dst, meta)
    prepare(src, dst, meta, gather=True)


def triggered_twice(src, dst, meta):
    prepared = prepare(src, dst, meta)
    ncc.all_to_all_v_trigger(prepared)
    ncc.all_to_all_v_trigger(prepared)


def in_a_loop(src, dst, meta):
    prepared = prepare(src, dst, meta)
    nl.fori_loop(0, 2, lambda i: ncc.all_to_all_v_trigger(prepared))


ORDER = {
    "no trigger": (prepare, "all_to_all_v_prepare has no trigger"),
    "two prepares": (twice, r"another prepare \(all_to_all_v_prepare\) has had no trigger yet"),
    "two triggers": (triggered_twice, "triggered already"),
    "of another kind": (
        lambda s, d, m: ncc.all_gather_v_trigger(prepare(s, d, m)),
        "isn't what ncc.all_gather_v_prepare returned",
    ),
    "of another instruction": (
        lambda s, d, m: ncc.all_to_all_v_trigger(nisa.dma_copy(d, s)),
        "isn't what ncc.all_to_all_v_prepare returned",
    ),
    "in another loop": (in_a_loop, "only one in a loop"),
}


@pytest.mark.parametrize("case", ORDER)
def test_each_prepare_has_one_trigger(case):
    body, message = ORDER[case]
    with pytest.raises(CompileError, match=message) as caught:
        compiled(body)
    assert caught.value.code == "collective-prepare" and __file__ in caught.value.location


def test_both_in_one_round_of_a_loop():
    def body(src, dst, meta):
        def round_(i):
            ncc.all_to_all_v_trigger(prepare(src, dst, meta))

        nl.fori_loop(0, 2, round_)

    assert compiled(body)


def test_arguments_are_checked_at_prepare():
    def body(src, dst, meta):
        prepare(src, dst, meta[0:2, :])

    with pytest.raises(NkiValidationError, match="metadata_tensor has shape") as caught:
        compiled(body)
    assert caught.value.instruction == "ncc.all_to_all_v_prepare"


@pytest.mark.parametrize("gather", [False, True])
def test_not_with_neuron_switch(gather):
    def body(src, dst, meta):
        split(gather)[2](prepare(src, dst, meta, gather))

    with pytest.raises(NkiValidationError, match="trn3, which has NeuronSwitch") as caught:
        compiled(body, "trn3")
    assert caught.value.code == "collective-prepare"
    with pytest.raises(CompileError, match=r"_v_prepare came with NKI 0\.7"):
        compiled(body, release="0.6")


def test_collectives_return_instructions():
    def body(src, dst, meta):
        group = ncc.ReplicaGroup([[0, 1, 2, 3]])
        big, part = C.hbm((4, 8), src.dtype), C.hbm((1, 8), src.dtype)
        four = C.hbm((4, 8), src.dtype)
        nisa.dma_copy(dst=four, src=src.broadcast(0, 4))
        other = C.hbm(src.shape, src.dtype)
        done = [
            ncc.all_reduce([src], [dst], group, nl.add),
            ncc.all_gather([src], [big], group, 0),
            ncc.reduce_scatter([four], [part], group, collective_dim=0, op=nl.add),
            ncc.all_to_all([four], [big], group, 0),
            ncc.all_to_all_v([src], [dst], group, meta),
            ncc.all_gather_v([src], [C.hbm((1, 32), src.dtype)], group, meta),
            ncc.collective_permute([src], [dst], [(0, 1), (1, 0)]),
            ncc.collective_permute_implicit([[src]], [[other]], group),
            ncc.collective_permute_implicit_reduce([[src]], [[other]], [[dst]], group, nl.add),
        ]
        assert all(isinstance(d, nisa.NkiInstruction) for d in done)
        for first, then in pairwise(done):
            then.depends_on(first, kind=nisa.dependency.runtime)

    assert compiled(body)
