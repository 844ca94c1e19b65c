"""Engines of instructions that run on several, where the kernel leaves the choice."""

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.program.instruction import instructions
from tests.compiler.compiling import compiled


def sb(dtype=nl.float32):
    return nl.ndarray((5, 7), dtype=dtype, buffer=nl.sbuf)


def ps(*shape):
    return nl.ndarray(shape or (5, 7), dtype=nl.float32, buffer=nl.psum)


def sent(**more):
    other = 1 - nl.program_id(0)
    return nisa.sendrecv(sb(), sb(), send_to_rank=other, recv_from_rank=other, pipe_id=0, **more)


@pytest.mark.parametrize(
    ("issue", "engine"),
    [
        (sent, "dma"),
        (lambda: sent(dma_engine=nisa.dma_engine.gpsimd_dma), "gpsimd"),
        (lambda: nisa.tensor_tensor(sb(), sb(), sb(), nl.add), "vector"),
        (lambda: nisa.tensor_tensor(sb(), sb(), sb(), nl.power), "gpsimd"),
        (lambda: nisa.tensor_scalar(sb(), sb(), nl.add, 2.0), "vector"),
        (lambda: nisa.tensor_scalar(sb(), sb(), nl.power, 2.0), "gpsimd"),
        (lambda: nisa.tensor_scalar(sb(), sb(), nl.add, 2.0, op1=nl.power, operand1=2), "gpsimd"),
        (lambda: nisa.nc_transpose(ps(7, 5), sb()), "tensor"),
        (lambda: nisa.nc_transpose(ps(7, 5), ps()), "vector"),
    ],
)
def test_engine(issue, engine):
    def kernel():
        issue()

    *_, last = instructions(compiled(kernel, lnc=2).programs[0].body)
    assert last.engine == engine
