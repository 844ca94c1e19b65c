"""A kernel of our own as it is written, its arrays, and what has to come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nki_dist as nki
from nki_dist.compat import beta1

BF16 = ml_dtypes.bfloat16


@dataclass
class Written:
    """A kernel with its check.

    Attributes:
        wanted: of the arrays: what it returns, as an array or a tuple of them.
        tolerance: relative and absolute.
    """

    kernel: Callable[..., Any]
    arrays: tuple[Any, ...]
    wanted: Callable[..., Any]
    tolerance: float = 0.0
    lnc: int = 1
    platform: str = "trn2"
    ranks: int = 1
    beta1: bool = False

    @property
    def launched(self) -> Any:
        """The kernel as its decorator makes it."""
        return beta1.jit(self.kernel) if self.beta1 else nki.jit(self.kernel)

    def compile(self) -> Any:
        """The compiled kernel."""
        with nki.World(self.ranks, self.lnc, self.platform, host="inprocess") as world:
            return world.compile(self.launched, *self.arrays)

    def run(self) -> Any:
        """Compare the results of rank 0; the compiled kernel."""
        with nki.World(self.ranks, self.lnc, self.platform, host="inprocess") as world:
            compiled = world.compile(self.launched, *self.arrays)
            got = world.run(self.launched, *self.arrays)[0]
        wanted = self.wanted(*self.arrays)
        got = got if isinstance(got, (tuple, list)) else (got,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for found, want in zip(got, wanted, strict=True):
            found, want = np.asarray(found).astype(np.float64), np.asarray(want, np.float64)
            assert found.shape == want.shape
            np.testing.assert_allclose(found, want, rtol=self.tolerance, atol=self.tolerance)
        return compiled


def whole(*shape: int, seed: int = 0, dtype: Any = np.float32, below: int = 6) -> np.ndarray:
    """Small whole numbers from 1 on."""
    return np.random.default_rng(seed).integers(1, below, shape).astype(dtype)
