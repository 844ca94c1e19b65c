"""The random generators of the Vector and GpSimd engines.

Purpose: one XORWOW generator (Marsaglia, "Xorshift RNGs", 2003: five words of xorshift state and a
counter) per lane on GpSimd and four per lane on Vector, which is what the sizes of
nisa.rand_set_state say. Element k of a lane comes from generator k modulo the number of generators;
an instruction advances all generators of the lanes it writes by the same number of steps.

Invariant: bits depend on engine, seed and the sequence of instructions only. Every launch starts
as if seeded with 0, and the same seed gives every core the same states. What cores hold before they
are seeded isn't documented. That they hold the same is what nki-library's experimental/rng/rng.py
needs: on two cores, and with no seed ("the common path"), both draw and store to one output.

Not modelled: the bits of the hardware, and states that outlive a launch. On a device they stay
until a core is reset; that file seeds in one launch and draws in another. Which word of
rand_set_state goes where, and what set_rng_seed makes of a seed, aren't documented: the words are
taken as x, y, z, w, v, counter of one generator after the other, and a seed is spread by
SplitMix64.

Follows: AWS Neuron SDK, `nki/api/nki/isa/__init__.py` (rng, rand2, rand_set_state, set_rng_seed).
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

import numpy as np

from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.rows import lanes
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access

WORDS: Final = 6  # state of one generator
GENERATORS: Final = {"vector": 4, "gpsimd": 1}
APPROXIMATE: Final = "approximate: same distribution, other bits than hardware"
_WEYL: Final = np.uint32(362437)
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


def seeded(engine: str, seed: int, lanes: int) -> np.ndarray:
    """States (6, lanes, generators) made from a seed."""
    shape = (WORDS, lanes, GENERATORS[engine])
    count = prod(shape)
    key = (seed + (len(engine) << 56)) & _MASK
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    z += np.uint64((key * 0xD1342543DE82EF95 + 1) & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    words = (z >> np.uint64(32)).astype(np.uint32).reshape(shape)
    words[0] |= np.uint32(1)  # all five xorshift words zero would stay zero
    return words


def states(kit: Kit, engine: str) -> Array:
    """The engine's generators on this core, (6, lanes, generators) uint32."""
    return kit.random(engine, partial(seeded, engine, 0, kit.arch.partitions))


def draw(kit: Kit, engine: str, a: Access) -> tuple[Array, Operation]:
    """Random bits for the elements of an operand, uint32 (P, N), and what draws them."""
    width = GENERATORS[engine]
    steps = -(-a.free_size // width)
    blocks = -(-steps // 5)
    lane_shape = (a.shape[0], width)
    # The xorshift words ever held, oldest first: five of them are the state.
    words = kit.scratch((5 * blocks + 5, *lane_shape), np.uint32)
    work = kit.scratch((2, 5, *lane_shape), np.uint32)
    numbers = kit.scratch((steps, *lane_shape), np.uint32)
    bits = kit.scratch((a.shape[0], a.free_size), np.uint32)
    held = states(kit, engine)[:, lanes(kit, a)]
    return bits, op(_draw, held, words, work, numbers, bits)


@function(reads="held", writes="held words work numbers bits", name="draw")
def _draw(
    held: np.ndarray, words: np.ndarray, work: np.ndarray, numbers: np.ndarray, bits: np.ndarray
) -> None:
    """Advance the generators and fill `bits`."""
    steps = len(numbers)
    words[:5] = held[:5]
    _advance(words, work)
    counts = np.arange(1, steps + 1, dtype=np.uint32) * _WEYL
    np.add(words[5 : 5 + steps], counts.reshape(-1, 1, 1), numbers)
    np.add(numbers, held[5], numbers)
    held[:5] = words[steps : steps + 5]
    held[5] += counts[-1]
    flat = numbers.transpose(1, 0, 2).reshape(len(bits), -1)
    np.copyto(bits, flat[:, : bits.shape[1]])


def _advance(words: np.ndarray, work: np.ndarray) -> None:
    """Five steps at a time: what a step takes from five steps ago is known for all of them."""
    old, shifted = work
    spare = shifted[0]
    for k in range(0, len(words) - 5, 5):
        block = words[k : k + 5]
        np.right_shift(block, 2, old)
        np.bitwise_xor(old, block, old)
        np.left_shift(old, 1, shifted)
        np.bitwise_xor(old, shifted, old)
        last = words[k + 4]
        for n in range(5):
            np.left_shift(last, 4, spare)
            np.bitwise_xor(spare, last, spare)
            last = words[k + 5 + n]
            np.bitwise_xor(spare, old[n], last)


@function(reads="bits", writes="bits out")
def uniform(bits: np.ndarray, out: np.ndarray) -> None:
    """`bits` as float32 (P, N): multiples of 2**-24 in [0, 1)."""
    np.right_shift(bits, 8, bits)
    # Below 2**24 the sign bit is clear, and NumPy converts signed integers four times faster.
    np.copyto(out, bits.view(np.int32), casting="unsafe")
    np.multiply(out, np.float32(2.0**-24), out)
