"""What is worked out once for a pattern of instructions holds for all that have the pattern."""

from dataclasses import replace

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.fuzz.corpus import corpus
from nki_dist import arch
from nki_dist.compiler.saved import parse
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, instructions
from nki_dist.timing import order
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.fixed import describe

from .build import compiled

PLACES = [
    (nl.sbuf, 128, 0),
    (nl.sbuf, 64, 0),
    (nl.sbuf, 64, 64),
    (nl.sbuf, 8, 32),
    (nl.psum, 128, 0),
]
ENGINES = [nisa.vector_engine, nisa.gpsimd_engine]


class Shape(Access):
    """An operand without what a cost may not ask: its tensor, where in it, run-time indices."""

    def __init__(self, a):
        self.shape, self.strides, self.dtype = a.shape, a.strides, a.dtype
        self._region = a.storage.region

    region = property(lambda self: self._region)


def shapes(value):
    if isinstance(value, Access):
        return Shape(value)
    return [*map(shapes, value)] if isinstance(value, list) else value


def varied(x):
    """Each instruction differs from another one in a single respect."""
    for dtype in (nl.float32, nl.bfloat16):
        for memory, rows, first in PLACES:
            for columns in (64, 256):
                whole = nl.ndarray((128, 256), dtype, buffer=memory)
                tile = whole[first : first + rows, 0:columns]
                if memory == nl.sbuf:
                    nisa.dma_copy(dst=tile, src=x[first : first + rows, 0:columns])
                    nisa.dma_copy(dst=tile, src=x[0:rows, 0 : 2 * columns : 2])
                    nisa.dma_copy(dst=tile, src=x[0:rows, 0:columns], dge_mode=nisa.dge_mode.swdge)
                for value in (0.0, 1.0):
                    nisa.memset(dst=tile, value=value)
                for engine in ENGINES[: 1 if memory == nl.psum else 2]:
                    nisa.tensor_copy(dst=tile, src=tile, engine=engine)
                for function in (nl.exp, nl.gelu, nl.exp):
                    nisa.activation(dst=tile, op=function, data=tile)
    for source in (0, 1):
        kept = nl.ndarray((8, 64), nl.float32, buffer=nl.private_hbm)
        nisa.dma_copy(dst=kept, src=x[8 * source : 8 * source + 8, 0:64])
        tile = nl.ndarray((128, 64), nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=tile, engine=nisa.vector_engine)


def described_alone(graph, machine, plan):
    found = {}
    for i in instructions(graph.program.body):
        alone = replace(graph, program=replace(graph.program, body=[i]))
        found |= describe(alone, machine, plan)
    return found


@pytest.mark.parametrize("platform", ["trn1", "trn2"])
def test_patterns_say_all_that_differs(platform):
    (program,), machine = compiled(varied, [(128, 512)], platform=platform)
    graph, plan = order(program), Plan()
    narrow = [i.ordinal for i in graph.executed if i.opcode == "activation"]
    plan.starts = {ordinal: 2.0 + n % 3 for n, ordinal in enumerate(narrow)}
    plan.in_psum = {graph.executed[-1]["dst"].storage.number}  # as the compiler has it
    found = describe(graph, machine, plan)
    assert found == described_alone(graph, machine, plan)
    shared = {id(fixed) for fixed in found.values()}
    assert len(shared) < len(found)  # some have the same pattern, where the tensor doesn't matter


@pytest.mark.parametrize("file", corpus(), ids=lambda f: f.name)
def test_costs_of_every_instruction_ask_operands_for_their_shape_alone(file):
    for program in parse(file.data)[0]:
        machine = arch.get(program.platform)
        for i in instructions(program.body):
            spec = INSTRUCTIONS[i.opcode]
            alone = i.with_args({name: shapes(value) for name, value in i.args.items()})
            assert spec.cost_of(alone, machine) == spec.cost_of(i, machine)
