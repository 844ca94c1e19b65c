"""Variables of the environment that shape programs: each makes another one, and only once."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.arch import get
from nki_dist.checks import Checks
from nki_dist.compiler.compiled import Grid
from nki_dist.launcher.binding import bind_arguments
from nki_dist.launcher.session import CompileCache, session


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3"),
        ("NEURON_LOGICAL_NC_CONFIG", "2"),
        ("NKI_PRECISE_FP", "0"),
        ("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true"),
        ("NKI_DIST_CHECK", "spill"),
    ],
)
def test_another_setting_is_another_program(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session(), "cache", CompileCache())
    x = np.ones((3, 5), np.float32)

    def compiled() -> int:
        nki.simulate(copy).compile(x)  # no launch: a warm world knows kernels of another cache
        return len(session().cache._cache)

    monkeypatch.delenv(variable, raising=False)
    assert [compiled(), compiled()] == [1, 1]
    monkeypatch.setenv(variable, value)
    assert [compiled(), compiled()] == [2, 2]
    monkeypatch.delenv(variable)
    assert compiled() == 2


def test_kernels_of_another_cache_have_other_names() -> None:
    """Worlds keep what they linked by name, and outlive a cache."""

    def other(x):
        return x

    names = set()
    for kernel in (copy.fn, other):
        bound = bind_arguments(kernel, (np.ones((3, 5), np.float32),), {})
        grid = Grid((), 1, ())
        names.add(CompileCache().get(kernel, bound, get("trn2"), grid, Checks())[0])
    assert len(names) == 2
