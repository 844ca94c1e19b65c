"""Where the bits of low precision go: which operands need one type, and which keep every bit."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from nki_dist.compiler.passes.low_precision import LOW
from nki_dist.dtypes import bfloat16, float32
from nki_dist.errors import NkiError
from nki_dist.program import Access
from nki_dist.program.walk import operands
from tests.isa.effects.running import Machine, decoded, encoded, retyped

ODD_BITS: Final = {
    8: (0x7D, 0xFF, 0x80, 0x01, 0x3C),
    16: (0x7FA5, 0xFF81, 0x8000, 0x0003, 0x8001, 0x7FFF, 0x3F81),
}
"""By width: NaN, signalling and quiet, with payloads, -0, denormals, a number."""


def lowered(machine: Machine) -> Machine:
    """The case with as many operands as possible in bfloat16, as kernels of low precision have."""
    names = []
    for name, a in operands(machine.i.args):
        taken = machine.spec.roles[name].dtypes
        if a.dtype is float32 and name not in names and (taken is None or bfloat16 in taken):
            names.append(name)
    for chosen in (names, *([n] for n in names)):
        try:
            machine = retyped(machine, dict.fromkeys(chosen, bfloat16))
        except NkiError:
            continue
        if chosen is names:
            break
    return machine


def low_operands(machine: Machine) -> dict[str, Access]:
    """Operands of low precision, by parameter."""
    return {n: a for n, a in operands(machine.i.args) if a.dtype in LOW}


def needing_one_type(machine: Machine) -> set[str]:
    """Operands of low precision that can't be float32 alone, with those that must be so, too."""
    names = set(low_operands(machine))
    found: set[str] = set()
    for name in sorted(names):
        others = sorted(names - {name})
        groups = ({name, *g} for size in range(len(names)) for g in combinations(others, size))
        group = next((g for g in groups if _works_in_float32(machine, g)), None)
        if group != {name}:
            found |= group or {name}
    return found


def _works_in_float32(machine: Machine, names: set[str]) -> bool:
    """Whether results are the same numbers with these operands in float32."""
    try:
        wide = retyped(machine, dict.fromkeys(names, float32))
        machine.link()
        wide.link()
        want, got = machine.run(), wide.run()
    except (NkiError, ValueError, KeyError, TypeError):
        return False
    both = zip(machine.with_mode("w"), wide.with_mode("w"), want, got, strict=True)
    for (_, a), (_, b), w, g in both:
        if a.dtype is not b.dtype:
            g = encoded(decoded(g, b.dtype), a.dtype)
        if (w != g).any():
            return False
    return True


def keeping_bits(machine: Machine) -> set[str]:
    """Results, and sources from which every bit pattern gets there."""
    found = set()
    low = low_operands(machine)
    machine.link()
    for name, a in machine.with_mode("r"):
        for n, (result, b) in enumerate(machine.with_mode("w")):
            same = a.dtype is b.dtype or b.dtype.bits == 2 * a.dtype.bits
            if name in low and result in low and same and _arrive(machine, a, n):
                found |= {name, result}
    return found


def _arrive(machine: Machine, a: Access, result: int) -> bool:
    for bits in ODD_BITS[a.dtype.bits]:
        contents = np.full(a.storage.nbytes // a.dtype.itemsize, bits, a.dtype.raw)
        try:
            got = machine.run(None, **{f"s{a.storage.number}": contents.view(np.uint8)})
        except NkiError:
            return False
        if not (got[result] == bits).any():
            return False
    return True


def padded(machine: Machine) -> bool:
    """Whether 8-bit elements become 16-bit ones that hold the same bits, but other numbers."""
    machine.link()
    for (_, a), bits in zip(machine.with_mode("w"), machine.run(), strict=True):
        for _, b in machine.with_mode("r"):
            if b.dtype in LOW and b.dtype.bits == 8 and a.dtype.bits == 16:
                there = machine.start[b.storage.number]
                if set(bits.reshape(-1).tolist()) == set(there.tolist()):
                    return True
    return False
