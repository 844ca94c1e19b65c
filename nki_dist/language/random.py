"""`nl.rand`, `nl.random_seed`, `nl.dropout`: random numbers of the Vector engine's generator.

The sequence is that of `nisa.rng`: reproducible for a seed, not the hardware's.

Follows: `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from nki_dist.dtypes import float32, uint32
from nki_dist.isa.dma_copy import dma_copy
from nki_dist.isa.random_numbers import dropout as _dropout
from nki_dist.isa.random_numbers import rng
from nki_dist.isa.random_state import set_rng_seed
from nki_dist.isa.tensor_scalar import tensor_scalar
from nki_dist.language import emit
from nki_dist.language.creation import is_hbm, ndarray
from nki_dist.program import sbuf

# A float32 holds 24 bits exactly, so numbers are multiples of 2**-24 and never reach 1.
_BITS = 24


def rand(shape, dtype, buffer=sbuf, name=""):
    """A new tensor of numbers uniform in [0, 1); dtypes narrower than float32 may round up to 1."""
    result = ndarray(shape, dtype, buffer, name)
    bits = emit.new(result.shape, uint32)
    rng(bits)
    shifted = emit.with_number("right_shift", bits, 32 - _BITS, False, uint32)
    target = emit.new(result.shape, result.dtype) if is_hbm(result.buffer) else result
    tensor_scalar(target, shifted, "multiply", 2.0**-_BITS)
    if target is not result:
        dma_copy(result, target)
    return result


def random_seed(seed):
    """Start the generator anew from `seed`, a (1, 1) tile with a 32-bit value."""
    set_rng_seed(emit.tile("random_seed", "seed", seed))


def dropout(x, rate, dtype=None):
    """`x` with elements replaced by zero with probability `rate`, a number or a (P, 1) tile.

    What is kept isn't scaled.
    """
    x = emit.tile("dropout", "x", x)
    result = emit.new(x.shape, x.dtype)
    if not isinstance(rate, emit.NUMBERS) and x.dtype.is_integer:
        rate = emit.converted(emit.tile("dropout", "rate", rate), float32)
    _dropout(result, x, rate)
    return emit.converted(result, dtype)
