"""What Python kernels may have, and parameters that 0.7 added to old names.

From the announcement "Announcing changes to NKI specialization", the release notes of NKI 0.7.0
and the page "NKI Loops" of SDK 2.33.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from tests.isa.helpers import numbers, output, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

X = numbers(1, (300, 20))


def row_tiles(x, size=128):
    """A generator."""
    for start in range(0, x.shape[0], size):
        yield start, nl.load(x[start : start + size])


class Stage:
    factor = 1.0

    def __init__(self, tile):
        self.tile = tile

    def apply(self):
        nisa.tensor_scalar(dst=self.tile, data=self.tile, op0=nl.multiply, operand0=self.factor)
        return self


class Doubled(Stage):
    """Inheritance, with super() and a property."""

    @property
    def factor(self):
        return 2.0

    def apply(self):
        super().apply()
        nisa.tensor_scalar(dst=self.tile, data=self.tile, op0=nl.add, operand0=1.0)
        return self


def of_all_python(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = {start: tile for start, tile in row_tiles(x) if start >= 0}
    stages = [Doubled(tile).apply() for tile in tiles.values()]
    for (start, _), stage in zip(sorted(tiles.items(), key=lambda item: item[0]), stages):
        nl.store(out[start : start + stage.tile.shape[0]], stage.tile)
    if len(stages) is None:
        raise ValueError("never")
    return out


def keyword_only(x, *, factor=2.0):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    return output(tile)


@pytest.mark.parametrize("host", ["inprocess", "debug"])
@pytest.mark.parametrize("against_release", [None, "0.7"])
def test_generators_and_inheritance(against_release, host):
    kernel = nki.jit(of_all_python)
    with nki.World(host=host, release=against_release) as world:
        (out,) = world.run(kernel, X)
    assert np.array_equal(out, X * np.float32(2) + np.float32(1))
    asked = "refusals=all" if against_release is None else f"refusals=all,release={against_release}"
    codes = {w.code for w in nki.simulate(kernel, check=asked).compile(X).warnings}
    # By default the kernel may be one of 0.6, whose compiler is reported to refuse some of it.
    expected = {"python-comprehension", "python-targets", "python-builtin", "python-raise"}
    assert codes == (set() if against_release == "0.7" else expected)


def test_rules_of_0_6_dont_hold_in_0_7():
    def identity(x, flag=True):
        return output(nl.load(x[0:2] if flag is True else x[0:1]))

    def number_keys(x):
        return output(nl.load(x[{0: slice(0, 2)}[0]]))

    x = X[0:2]
    found = {
        h: nki.simulate(nki.jit(identity), check=f"refusals=all,release={h}")
        for h in ("0.6", "0.7")
    }
    codes = {h: [w.code for w in kernel.compile(x).warnings] for h, kernel in found.items()}
    assert codes == {"0.6": ["python-identity"], "0.7": []}
    for kernel in (number_keys, keyword_only):
        with nki.World(host="inprocess", release="0.7") as world:
            world.run(nki.jit(kernel), x)
        for against_release in (None, "0.6"):
            with (
                nki.World(host="inprocess", release=against_release) as world,
                pytest.raises(errors.CompileError, match=r"AWS's compiler|dicts of kernels"),
            ):
                world.run(nki.jit(kernel), x)


def test_a_generator_is_no_kernel():
    with pytest.raises(errors.LaunchError, match="a generator function"):
        nki.jit(row_tiles)


def test_a_dynamic_loop_in_a_generator():
    def rounds(x, out):
        def body(i):
            nl.store(out[nl.ds(i, 1), :], nl.load(x[nl.ds(i, 1), :]))

        for start in (0, 10):
            nl.fori_loop(start, start + 10, body)
            yield start

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        assert list(rounds(x, out)) == [0, 10]
        return out

    assert np.array_equal(run(kernel, X[0:20]), X[0:20])


def test_comparison_of_objects_is_pythons():
    """`==` of user-defined classes: identity, unless a class or dataclass says otherwise."""

    class Plain(nl.NKIObject):
        n: int

    @dataclass
    class Compared(nl.NKIObject):
        n: int = 0

    def kernel(x):
        assert Plain(n=1) != Plain(n=1)
        assert Compared(n=1) == Compared(n=1)
        return output(nl.load(x))

    assert np.array_equal(run(kernel, X[0:4]), X[0:4])


def test_data_of_a_tensor():
    def kernel(x):
        tile = nl.ndarray((4, 20), dtype=x.dtype)
        nisa.dma_copy(dst=tile.data, src=x.data[0:4])
        return output(tile.data)

    assert np.array_equal(run(kernel, X), X[0:4])
