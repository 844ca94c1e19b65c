"""The static analysis against execution: poison is NaN, and NaN spreads as the rules say.

Random kernels of moves, sums, reductions, transposes, matmuls and loops run with every tensor
poisoned. The elements of the result that are NaN must be those that the analysis reports, no more
and no fewer; and a kernel that is let pass must give the same bits when only the storages in
`facts["poison"]` are poisoned.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_dist
import nki_dist.compiler.compile as compile_module
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import UninitializedReadError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

N = 32
TILES = 5
DATA = np.random.default_rng(7).uniform(1, 2, (N, N)).astype(np.float32)


def _part(rng: random.Random) -> slice:
    start = rng.randrange(N - 1)
    step = rng.choice((1, 1, 1, 2, 3))
    return slice(start, rng.randrange(start + 1, N + 1), step)


def _step(rng: random.Random, tiles: list[Any], a: Any) -> None:
    dst, one, two = [rng.randrange(TILES) for _ in range(3)]
    part = slice(0, N) if rng.random() < 0.5 else _part(rng)
    kind = rng.randrange(8)
    if kind in (0, 1):
        nisa.dma_copy(dst=tiles[dst][:, part], src=a[:, part])
    elif kind == 2:
        nisa.memset(dst=tiles[dst][:, part], value=rng.random())
    elif kind == 3:
        nisa.tensor_copy(dst=tiles[dst][:, part], src=tiles[one][:, part])
    elif kind == 4:
        operands = tiles[one][:, part], tiles[two][:, part]
        nisa.tensor_tensor(tiles[dst][:, part], *operands, op=nl.add)
    elif kind == 5:
        column = rng.randrange(N)
        total = tiles[dst][:, column : column + 1]
        nisa.tensor_reduce(dst=total, op=nl.add, data=tiles[one][:, part], axis=1)
    else:
        product = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.psum)
        if kind == 6:
            nisa.nc_transpose(dst=product, data=tiles[one], engine=nisa.engine.tensor)
        else:
            nisa.nc_matmul(dst=product, stationary=tiles[one], moving=tiles[two])
            if rng.random() < 0.5:
                nisa.nc_matmul(dst=product, stationary=tiles[two], moving=tiles[dst])
        nisa.tensor_copy(dst=tiles[dst][:, part], src=product[:, part])


def _kernel(seed: int) -> Callable[..., Any]:
    def kernel(a):
        rng = random.Random(seed)
        out = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        tiles = [nl.ndarray((N, N), dtype=nl.float32, buffer=nl.sbuf) for _ in range(TILES)]
        for tile in tiles[: rng.randrange(TILES + 1)]:
            nisa.dma_copy(dst=tile, src=a)
        for _ in range(rng.randrange(2, 9)):
            _step(rng, tiles, a)
        if rng.random() < 0.3:
            for _ in nl.dynamic_range(2):
                _step(rng, tiles, a)
        for _ in range(2):
            rows = _part(rng)  # partitions can't be skipped
            part = slice(rows.start, rows.stop)
            nisa.dma_copy(dst=out[part, :], src=tiles[rng.randrange(TILES)][part, :])
        return out

    return kernel


def _run(seed: int) -> np.ndarray:
    return np.asarray(nki_dist.simulate(nki_dist.jit(_kernel(seed)))(DATA))


def _poisoned_run(seed: int) -> np.ndarray:
    """The result with every storage poisoned and nothing refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_module, "check_uninitialised", lambda programs, strict: None)
        # The seed makes another kernel of it, so no compiled program is shared with `_run`.
        kernel = _kernel(seed)
        return np.asarray(nki_dist.simulate(nki_dist.jit(lambda a: kernel(a)))(DATA))


@pytest.mark.parametrize("block", range(10))
def test_reported_elements_are_those_that_turn_out_poisoned(block: int) -> None:
    reported = 0
    for seed in range(block * 20, block * 20 + 20):
        poisoned = _poisoned_run(seed)
        wrong = int(np.isnan(poisoned).sum())
        try:
            result = _run(seed)
        except UninitializedReadError as error:
            found = re.match(r"(\d+) of 1024 elements of output", error.message)
            assert found, error.message
            assert int(found[1]) == wrong, f"seed {seed}: {error}"
            reported += 1
        else:
            assert wrong == 0, f"seed {seed}: {wrong} poisoned elements were let pass"
            assert result.tobytes() == poisoned.tobytes(), f"seed {seed}"
    assert 2 <= reported <= 18  # the kernels are neither all clean nor all wrong
