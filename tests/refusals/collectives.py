"""Collectives, compiled for a world of one rank."""

import warnings

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from tests.refusals.rule import F32, I32, U32, Rule, made

NCC = "nki/api/nki/collectives (%s)"
GROUP = ncc.ReplicaGroup([[0]])
GROUP4 = ncc.ReplicaGroup([[0, 1, 2, 3]])


def shared(*shape, dtype=F32, count=1):
    tensors = []
    for _ in range(count):
        tensors.append(made(*shape, dtype=dtype, buffer=nl.shared_hbm))
    return tensors


def tiles(*shape, dtype=F32, count=1):
    found = []
    for _ in range(count):
        found.append(made(*shape, dtype=dtype))
    return found


def gathers_v(b, dtype=U32, rdispls=False):
    counts = shared(4 if rdispls else 3, 4, dtype=dtype)[0]
    ncc.all_gather_v(shared(8, 6), shared(8, 6), GROUP4, counts, has_rdispls=rdispls)


def reduces(b):
    group = ncc.ReplicaGroup([[0, 1], [1 if b else 2, 3]])
    ncc.all_reduce(shared(8, 6), shared(8, 6), group, nl.add)


def on_ranks(body, b, **options):
    def kernel():
        body(b, **options)

    with nki.World(ranks=4, lnc=2, host="inprocess") as world:
        for warning in world.compile(kernel).warnings:
            warnings.warn(warning, stacklevel=1)


RULES = [
    Rule(
        "reduce-memories",
        "All tensors of a collective are in HBM, or all in SBUF",
        NCC % "all_reduce",
        "a collective's tensors must all be in HBM or all in SBUF",
        lambda b: ncc.all_reduce(shared(8, 6), tiles(8, 6) if b else shared(8, 6), GROUP, nl.add),
    ),
    Rule(
        "reduce-coalesced",
        "Several tensors at once are in HBM",
        NCC % "all_reduce",
        "coalesced) only in HBM",
        lambda b: ncc.all_reduce(
            (tiles if b else shared)(8, 6, count=2),
            (tiles if b else shared)(8, 6, count=2),
            GROUP,
            nl.add,
        ),
    ),
    Rule(
        "reduce-op",
        "Collectives add, or keep the minimum or maximum",
        NCC % "all_reduce",
        "op=nl.multiply; allowed: add, max, maximum, min, minimum",
        lambda b: ncc.all_reduce(shared(8, 6), shared(8, 6), GROUP, nl.multiply if b else nl.add),
    ),
    Rule(
        "collective-priority",
        "`priority` of a collective needs NeuronCore-v4",
        NCC % "all_reduce",
        "priority needs NeuronCore-v4",
        lambda b: ncc.all_reduce(shared(8, 6), shared(8, 6), GROUP, nl.add, priority=1),
        good_on="trn3",
    ),
    Rule(
        "all-to-all-memory",
        "`all_to_all` works in HBM",
        NCC % "all_to_all",
        "AWS documents this as a limit of its release",
        lambda b: ncc.all_to_all(
            (tiles if b else shared)(8, 6), (tiles if b else shared)(8, 6), GROUP, 0
        ),
        warns="nki_dist runs it; strict refuses it",
        code="collective-memory",
    ),
    Rule(
        "permute-memory",
        "`collective_permute` works in HBM",
        NCC % "collective_permute",
        "AWS documents this as a limit of its release",
        lambda b: ncc.collective_permute(
            (tiles if b else shared)(8, 6), (tiles if b else shared)(8, 6), [(0, 0)]
        ),
        warns="nki_dist runs it; strict refuses it",
        code="collective-memory",
    ),
    Rule(
        "permute-one",
        "`collective_permute` moves one tensor",
        NCC % "collective_permute",
        "srcs has 2 tensors",
        lambda b: ncc.collective_permute(
            shared(8, 6, count=1 + b), shared(8, 6, count=1 + b), [(0, 0)]
        ),
    ),
    Rule(
        "channels",
        "`channel_ids` count from 0",
        NCC % "collective_permute_implicit",
        "AWS documents this as a limit of its release",
        lambda b: ncc.collective_permute_implicit(
            [shared(8, 6)], [shared(8, 6)], GROUP, channel_ids=[1 if b else 0]
        ),
        warns="nki_dist runs it; strict refuses it",
        code="collective-channels",
    ),
    Rule(
        "gather-v-displacements",
        "`all_gather_v` takes no `has_rdispls`",
        NCC % "all_gather_v",
        "AWS documents this as a limit of its release",
        launch=lambda b: on_ranks(gathers_v, b, rdispls=b),
        warns="nki_dist runs it; strict refuses it",
        code="collective-displacements",
    ),
    Rule(
        "gather-v-metadata",
        "Counts of a variable collective are uint32",
        NCC % "all_gather_v",
        "metadata_tensor has dtype int32",
        launch=lambda b: on_ranks(gathers_v, b, dtype=I32 if b else U32),
    ),
    Rule(
        "group-overlap",
        "Groups of ranks don't overlap",
        NCC % "ReplicaGroup",
        "rank 1 is in groups 0 and 1 of [[0, 1], [1, 3]]",
        launch=lambda b: on_ranks(reduces, b),
    ),
]
