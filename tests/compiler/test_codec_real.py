"""Every instruction as a kernel issues it: encode, decode with all checks, encode.

tests/compiler/test_codec.py makes up arguments, which some roles always refuse.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.instruction_cases import cases
from bench.instructions import compiled as compiled_case
from nki_dist.compiler.decode import decode
from nki_dist.compiler.disasm import listing
from nki_dist.compiler.encode import encode
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Program, instructions
from tests.collectives import kernels
from tests.compiler.compiling import compiled
from tests.compiler.programs import plain_program

X = ((4, 6), np.float32)
GROUP = ncc.ReplicaGroup([[0, 2], [3, 1]])


def small(x):
    """Registers, random states, printing, and two cores that meet."""
    tile, got = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype)
    first, second = nisa.register_alloc(3), nisa.register_alloc()
    nisa.register_move(second, ncc.rank_id())
    place = nl.ndarray((1, 1), dtype=nl.int32)
    nisa.register_store(place, second)
    nisa.register_load(first, place)
    nisa.scalar_store(place, nisa.scalar_load(place) * 2 - 1)
    nisa.set_rng_seed(place)
    state = nl.ndarray((4, 6), dtype=nl.uint32)
    nisa.rand_get_state(state)
    nisa.rand_set_state(state)
    nl.device_print("x", tile)
    me = nl.program_id(0)
    nisa.sendrecv(tile, got, 1 - me, 1 - me, 0)
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out[me], got)
    nisa.core_barrier(out, (0, 1))
    return out


def collective_kernels():
    """(kernel, inputs) that together use every collective."""

    def variable(gather):
        return lambda x, meta: kernels.variable.fn(x, 24, meta, GROUP, gather)

    counts = ((3, 2), np.uint32)
    yield lambda x: kernels.all_reduce.fn(x, GROUP, nl.add), X
    yield lambda x: kernels.reduce_scatter.fn(x, GROUP, nl.add, 2), X
    yield lambda x: kernels.all_gather.fn(x, GROUP, 2), X
    yield lambda x: kernels.all_to_all.fn(x, GROUP), X
    yield lambda x: kernels.permute.fn(x, [(0, 1), (1, 0)]), X
    yield lambda x: kernels.ring.fn(x, GROUP, 2, 1), X
    yield lambda x, y: kernels.ring_reduce.fn(x, y, GROUP, nl.add), X, X
    for gather in (False, True):
        yield variable(gather), X, counts


@cache
def programs() -> tuple[Program, ...]:
    found = [compiled_case(case)[0] for case in cases()]
    for kernel, *inputs in [(small, X), *collective_kernels()]:
        kernel.__name__ = "kernel"
        found += compiled(kernel, *inputs, lnc=2).programs
    return tuple(found)


def test_every_instruction_is_among_them():
    used = {i.opcode for program in programs() for i in instructions(program.body)}
    assert used == set(INSTRUCTIONS)


@pytest.mark.parametrize("number", range(len(cases()) + 2 * 10))
def test_an_instruction_comes_back_and_can_be_shown(number):
    program = programs()[number]
    packed = encode(program)
    back = decode(packed)
    assert plain_program(back) == plain_program(program)
    assert encode(back) == packed
    assert list(listing(back)) == list(listing(program))
