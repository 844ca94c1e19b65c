"""Kernels with unwritten elements, for the tests of who reports them and who lets them pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import UninitializedReadError
from tests.compiler.compiling import compiled

INPUT = ((48, 33), np.float32)


def sbuf(shape=(48, 33), dtype=nl.float32, name="", buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, name=name)


def hbm(shape=(48, 33), dtype=nl.float32, name="out"):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm, name=name)


def refusal(kernel: Callable[..., Any], *inputs: Any, **options: Any) -> UninitializedReadError:
    with pytest.raises(UninitializedReadError) as caught:
        compiled(kernel, *(inputs or (INPUT,)), **options)
    return caught.value


def stored(body: Callable[..., None], want: bool) -> None:
    """`body(a, loaded, partly, result)`: `partly` misses column 7, `result` is what is returned."""

    def kernel(a):
        out = hbm()
        loaded, partly, result = sbuf(), sbuf(name="partly"), sbuf()
        nisa.dma_copy(dst=loaded, src=a)
        nisa.tensor_copy(dst=partly[:, 0:7], src=loaded[:, 0:7])
        nisa.tensor_copy(dst=partly[:, 8:33], src=loaded[:, 8:33])
        nisa.memset(dst=result, value=0)
        body(a, loaded, partly, result)
        nisa.dma_copy(dst=out, src=result)
        return out

    if want:
        assert "partly" in str(refusal(kernel))
    else:
        facts = compiled(kernel, INPUT).programs[0].facts
        assert facts["uninitialised_reads"]
