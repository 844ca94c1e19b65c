"""What the tests of messages share: small kernels, and how a refused one is looked at."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

X = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


def output(x, shape=None):
    return nl.ndarray(shape or x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def here(mark, function):
    """`file:line` of the line of a function that says `# mark`."""
    code = getattr(function, "fn", function).__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    last = max(line for *_, line in code.co_lines() if line)
    for n in range(code.co_firstlineno, last + 1):
        if f"# {mark}" in lines[n - 1]:
            return f"{code.co_filename}:{n}"
    raise AssertionError(f"no line is marked {mark}")


def refused(kernel, error, message, *args, grid=None):
    with pytest.raises(error, match=message) as caught:
        nki.simulate(nki.jit(kernel)[grid])(*args)
    return caught.value


@nki.jit
def copied(x):
    out = output(x)
    nl.store(out, nl.load(x))
    return out


@nki.jit
def one_waits(x):
    tile, theirs = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nl.device_print("before", tile[0:1, nl.program_id(0) : nl.program_id(0) + 1])
    if nl.program_id(0) == 0:
        nisa.sendrecv(src=tile, dst=theirs, send_to_rank=1, recv_from_rank=1, pipe_id=0)
    return x


@nki.jit
def one_fails(x, row):
    tile, at, out = nl.load(x), nl.load(row), output(x)
    nl.device_print("before", tile[0:1, nl.program_id(0) : nl.program_id(0) + 1])
    nl.store(out[nl.program_id(0) : nl.program_id(0) + 1], tile[0:1])
    if nl.program_id(0) == 1:
        nisa.dma_copy(dst=out.ap([[32, 1], [1, 32]], scalar_offset=at), src=tile[0:1])
    return out
