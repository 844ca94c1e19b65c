"""nki-library's collective kernels in worlds larger than its tests ask for, against NumPy.

`python -m bench.real_kernels.collectives CHECKOUT` prints one JSON object per kernel and world.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import nki_dist as nki
from bench.real_kernels.checks import Check, run
from nki_dist import compat

PACKAGE = "nkilib_src.nkilib.experimental"
FOLDER = f"src/{PACKAGE.replace('.', '/')}"
WORLDS = ((4, 1), (4, 2), (8, 2), (16, 2), (32, 2), (64, 1), (64, 2))  # ranks, cores of each
ROWS, INNER, COLUMNS = 128, 128, 64  # per rank, but for the product's inner dimension
BF16 = ml_dtypes.bfloat16


def checks() -> Iterator[Check]:
    """The kernels that send rows round a ring, through SBUF and through HBM."""
    product = importlib.import_module(f"{PACKAGE}.collectives.fgcc").allgather_compute_matmul
    gather = importlib.import_module(f"{PACKAGE}.collectives.fg_allgather").fine_grained_allgather
    rng = np.random.default_rng(0)
    for ranks, lnc in WORLDS:
        left = rng.standard_normal((ranks, ROWS, INNER)).astype(BF16)
        right = rng.standard_normal((ranks, INNER, COLUMNS)).astype(BF16)
        rows = left.reshape(-1, INNER).astype(np.float64)
        products = rows @ right.astype(np.float64)  # each rank has its columns of the product
        for hbm in (False, True):
            world = f"{ranks} ranks of {lnc} through {'HBM' if hbm else 'SBUF'}"
            options = {"tp_degree": ranks, "num_groups": 1, "force_hbm_cc": hbm}

            def call(kernel: Any, want: np.ndarray, arrays: Any, n=lnc, options=options) -> Any:
                return lambda: _ranks(kernel, n, arrays, options).reshape(want.shape)

            want = np.broadcast_to(rows, (ranks, *rows.shape))
            file = f"{FOLDER}/collectives/fg_allgather.py"
            yield Check(file, f"gather {world}", call(gather, want, {"lhs": left}), want, 0.0)
            both = {"lhs": left, "rhs": right}
            file = f"{FOLDER}/collectives/fgcc.py"
            yield Check(file, f"product {world}", call(product, products, both), products, 1e-2)


def _ranks(kernel: Any, lnc: int, arrays: dict[str, np.ndarray], options: dict) -> np.ndarray:
    """What the kernel returns on every rank; the first dimension of `arrays` is the rank."""
    given = {name: nki.per_rank(list(array)) for name, array in arrays.items()}
    ranks = len(next(iter(arrays.values())))
    with nki.World(ranks=ranks, lnc=lnc, platform="trn2", host="inprocess") as world:
        return np.stack(world.run(kernel, **given, **options))


def main() -> None:
    compat.install()
    sys.path.insert(0, str(Path(sys.argv[1]).resolve() / "src"))
    run(checks())


if __name__ == "__main__":
    main()
