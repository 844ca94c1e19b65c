"""Kernels that sum products, and what became of them."""

from collections import Counter

import numpy as np

from nki_dist import World
from nki_dist.compat.beta1 import jit
from nki_dist.compat.beta1 import language as nl
from nki_dist.program.instruction import instructions
from tests.beta1.helpers import normal

K, M, N = 3 * 40, 33, 70  # three products of 40 rows each
A, B = normal(K, M), normal(K, N, seed=1)
PRODUCT = A.astype(np.float64).T @ B


def program(kernel, *args, platform="trn2"):
    with World(ranks=1, platform=platform, host="inprocess") as world:
        return world.compile(jit(kernel), *args).programs[0]


def opcodes(kernel, *args, platform="trn2"):
    """How many of each instruction that isn't a transfer."""
    body = program(kernel, *args, platform=platform).body
    found = Counter(i.opcode for i in instructions(body))
    del found["dma_copy"]
    return found


def operands(a, b, k):
    return nl.load(a[nl.ds(k * 40, 40), :]), nl.load(b[nl.ds(k * 40, 40), :])


def summing(body, shape=(M, N), buffer=nl.psum, blocks=(), zeros=True):
    """A kernel of three products, `body` says how each is added; the sum is read once."""

    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        make = nl.zeros if zeros else nl.ndarray
        acc = make(shape, dtype=nl.float32, buffer=buffer)
        for k in nl.affine_range(3):
            body(acc, *operands(a, b, k))
        result = nl.copy(acc[blocks] if blocks else acc)
        nl.store(out, result if result.shape == (M, N) else result.reshape((M, N)))
        return out

    return kernel
