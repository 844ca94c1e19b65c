"""What points beyond the step that made a number, to one further back that is worth a look before.

Each rule has a reason that holds for any kernel, and none is a proof: what they name is where to
look first. Nothing here knows what a kernel is for, so a line that does the wrong thing properly (a
mask one column too wide, a wrong factor, an operand turned once too often) isn't found.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nki_dist.dtypes import float32
from nki_dist.insight.capture import Capture, Found
from nki_dist.insight.log import Log
from nki_dist.insight.probe import Input, Odd, Probe, not_finite
from nki_dist.insight.steps import Source, Step
from nki_dist.isa import INSTRUCTIONS

# By how much operands may be off: a few roundings to float32, such as a sum of some hundred terms
# collects. A choice. Operands of narrower types count as exact.
NUDGE: Final = 1 + 8 * 2.0**-23


def infinities_of(log: Log, born: Step) -> Step | None:
    """The step that put in the infinities that another one made NaN of, where that was a choice.

    NaN of infinities that no arithmetic made: a mask put them there, and left nothing to a row (or
    nothing that the kernel is ready for). A fill of a whole tile is a value to start from, and no
    choice. Of several masks the last is named, which is a guess: an earlier one may have left
    nothing already.
    """
    if not _all(born, np.isnan):
        return None
    found = [
        step
        for step in _behind(born)
        if step.put_in and INSTRUCTIONS[log.at(step.step).opcode].reads(log.at(step.step))
    ]
    return max(found, key=lambda s: s.step, default=None)


def noise_before(log: Log, born: Step) -> Step | None:
    """The step whose result is nothing but rounding errors, of which another one made NaN.

    A difference of two numbers so close that a few roundings of either would change its sign: the
    root or logarithm that can't take it isn't where the mistake was made. Looked for as long as a
    number is made of one other number.
    """
    if not _all(born, np.isnan) or any(_odd(read) for read in born.reads):
        return None
    chain: dict[int, Step] = {}
    for first in born.reads:
        step = first if isinstance(first, Step) else None
        while step is not None and step.step not in chain:
            i = log.at(step.step)
            if INSTRUCTIONS[i.opcode].synchronises or not step.values.size:
                break
            chain[step.step] = step
            before = [read for read in step.reads if isinstance(read, Step)]
            step = before[0] if len(before) == 1 else None
    if not chain:
        return None
    found = Capture(log.launched, log, set(chain)).found
    for number in sorted(chain, reverse=True):
        if _is_noise(log, found[number], chain[number]):
            return chain[number]
    return None


def _is_noise(log: Log, found: Found, step: Step) -> bool:
    probe = Probe(log.launched, [found])
    for n, (_, r) in enumerate(probe.outputs):
        elements = r.covering(np.asarray([_place(step, r.storage.shape, r.dtype.itemsize)]))
        if r.storage.title != step.tensor or not r.dtype.is_float or not elements.size:
            continue
        assert probe.run()
        result = probe.values(n, elements).astype(np.float64)
        if not result.all() or not_finite(result).any():
            continue  # an exact zero is no noise
        for operand in probe.inputs:
            if operand.dtype is not float32 or not probe.run(operand, _nudged(operand)):
                continue
            moved = probe.values(n, elements).astype(np.float64) - result
            if (np.abs(moved) >= np.abs(result)).any():
                return True
    return False


def _nudged(operand: Input) -> np.ndarray:
    """The bits of a float32 operand, each number larger by a few roundings."""
    with np.errstate(all="ignore"):
        moved = operand.bits.view(np.float32).astype(np.float64) * NUDGE
        return moved.astype(np.float32).view(operand.bits.dtype)


def _place(step: Step, shape: tuple[int, ...], itemsize: int) -> int:
    """The first byte in its tensor of the first of a step's elements."""
    return int(np.ravel_multi_index(step.index, shape)) * itemsize if step.index else 0


def _all(read: Step, test: Odd) -> bool:
    values = read.values
    return bool(values.size and values.dtype.kind not in "biu" and np.all(test(values)))


def _odd(read: Step | Source) -> bool:
    """Whether it brings in what isn't finite; memory that nobody wrote does."""
    if isinstance(read, Source) and read.kind == "unwritten":
        return True
    values = read.values
    return bool(values.size and values.dtype.kind not in "biu" and not_finite(values).any())


def _behind(step: Step) -> list[Step]:
    """All steps that a step depends on."""
    found: dict[int, Step] = {}
    left = [step]
    while left:
        for read in left.pop().reads:
            if isinstance(read, Step) and id(read) not in found:
                found[id(read)] = read
                left.append(read)
    return list(found.values())


__all__ = ["infinities_of", "noise_before"]
