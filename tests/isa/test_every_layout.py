"""Each instruction, large, on other layouts and in overlapping places: the same bits.

The cases are those of bench.instructions. Results must depend on operands' values only: not on the
strides of a tile, not on how its free dimensions are grouped, not on the destination being (partly)
a source.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import output, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.instruction_cases import Case, cases
from nki_dist import dtypes

LAYOUTS = {
    "strided": lambda rows, n: ((rows, 2 * n), lambda t: t[:, 0 : 2 * n : 2]),
    "offset": lambda rows, n: ((rows, n + 3), lambda t: t[:, 3 : 3 + n]),
    "grouped": lambda rows, n: ((rows, 4, n // 4), lambda t: t) if n % 4 == 0 else None,
}
REFUSED = {  # forms that the instruction doesn't take
    ("grouped", "dma_transpose"),
    ("grouped", "tensor_reduce"),
    ("grouped", "nc_matmul_mx"),
    ("strided", "nc_match_replace8"),  # too large for SBUF
}
CASES = cases()


def bits(results: Any) -> list[np.ndarray]:
    results = results if isinstance(results, (tuple, list)) else [results]
    return [np.ascontiguousarray(r).reshape(-1).view(np.uint8) for r in results]


def laid_out(case: Case, layout: str) -> Any:
    def tile(shape, dtype, buffer):
        found = None
        if layout and buffer == nl.sbuf and len(shape) == 2:
            found = LAYOUTS[layout](*shape)
        if found is None:
            return nl.ndarray(shape, dtype=dtype, buffer=buffer)
        return found[1](nl.ndarray(found[0], dtype=dtype, buffer=buffer))

    def kernel(*arrays):
        tiles = list(arrays)
        if not case.hbm:
            tiles = [tile(a.shape, a.dtype, nl.sbuf) for a in arrays]
            for n in range(len(tiles)):
                nisa.dma_copy(tiles[n], arrays[n].reshape(tuple(tiles[n].shape)))
        outputs = [tile(*o) for o in case.outputs]
        for o in outputs:
            if o.buffer == nl.sbuf:
                nisa.memset(o, 0)
        case.issue(*tiles, *outputs)
        return [output(nl.copy(o) if o.buffer == nl.psum else o) for o in outputs]

    return kernel


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.instruction} {c.form}".strip())
def test_layouts(case):
    want = bits(run(laid_out(case, ""), *case.inputs, platform=case.platform))
    for layout in LAYOUTS:
        if (layout, case.instruction) in REFUSED:
            continue
        got = bits(run(laid_out(case, layout), *case.inputs, platform=case.platform))
        assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True)), layout


def overlapping(case: Case, which: int, shift: int | None) -> Any:
    """The first result goes where input `which` is, `shift` columns further; None: elsewhere."""

    def kernel(*arrays):
        rows, n = arrays[which].shape
        large = nl.ndarray((rows, n + 2), dtype=arrays[which].dtype)
        nisa.memset(large, 0)
        tiles = [nl.ndarray(a.shape, dtype=a.dtype) for a in arrays]
        tiles[which] = large[:, 1 : 1 + n]
        for k in range(len(tiles)):
            t, a = tiles[k], arrays[k]
            nisa.dma_copy(t, a)
        outputs = [nl.ndarray(s, dtype=d, buffer=m) for s, d, m in case.outputs]
        for o in outputs:
            nisa.memset(o, 0)
        if shift is not None:
            outputs[0] = large[:, 1 + shift : 1 + shift + n]
        case.issue(*tiles, *outputs)
        return [output(o) for o in outputs]

    return kernel


def overlaps() -> list[Any]:
    """(case, input) where the first output could be in the input's place."""
    found = []
    for case in CASES:
        shape, dtype, memory = case.outputs[0]
        for n, a in enumerate(case.inputs):
            equal = a.shape == shape and dtypes.of(a.dtype) is dtype and memory == nl.sbuf
            if equal and case.instruction != "tensor_copy_predicated":  # it keeps parts of dst
                found.append(pytest.param(case, n, id=f"{case.instruction} {case.form} {n}"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("case", "which"), overlaps())
def test_overlaps(case, which):
    want = bits(run(overlapping(case, which, None), *case.inputs, platform=case.platform))
    for shift in (0, 1, -1):
        kernel = overlapping(case, which, shift)
        got = bits(run(kernel, *case.inputs, platform=case.platform))
        assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True)), shift
