"""Kernels that are pickled: by their names here."""

from __future__ import annotations

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def scaled(x, by=2.0):
    tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=by, name="scale")
    nl.store(out, tile)
    return out


@nki.jit(platform_target="trn3")
def on_trn3(x):
    return scaled(x)


def plain(x):
    tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=first, value=1.0, name="fill")
    nisa.tensor_tensor(dst=tile, data1=tile, data2=first, op=nl.add, name="add")
    nl.store(out, tile)
    return out


jitted = nki.jit(plain)


@nki.autotune(configs=[{"by": 3.0}, {"by": 4.0}])
@nki.jit
def tuned(x, by):
    return scaled(x, by)


class Layer:
    """A method that is a kernel."""

    def __init__(self, by: float) -> None:
        self.by = by

    @nki.jit
    def forward(self, x):
        return scaled(x, self.by)

    @staticmethod
    @nki.jit
    def doubled(x):
        return scaled(x)


def shadowed(x):
    return scaled(x)


hidden = nki.jit(shadowed)
shadowed = None  # type: ignore[assignment]


def local():
    @nki.jit
    def kernel(x):
        return scaled(x)

    return kernel
