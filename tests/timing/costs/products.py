"""The Tensor engine, and what it is given: products, transposes, scaled types."""

from __future__ import annotations

from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.costs.rows import BF16, ENGINE, F32, P, Row, cycles, ps, sb, started


def product(n: int, columns: int, dtype: Any = BF16, rows: int = P, **more: Any) -> Any:
    return lambda: nisa.nc_matmul(
        ps(n, rows=columns),
        sb(columns, dtype=dtype, rows=rows),
        sb(n, dtype=dtype, rows=rows),
        **more,
    )


def double(n: int, columns: int) -> Any:
    tiles = [lambda k=k: sb(2, k, dtype=nl.float8_e5m2) for k in (columns, n)]
    return lambda: nisa.nc_matmul(
        ps(n, rows=columns), *(t() for t in tiles), perf_mode=nisa.matmul_perf_mode.double_row
    )


def scaled_product() -> Any:
    packed = nl.float8_e4m3fn_x4
    scales = [sb(n, dtype=nl.uint8, rows=32) for n in (20, 300)]
    return nisa.nc_matmul_mx(
        ps(300, rows=20), sb(20, dtype=packed, rows=32), sb(300, dtype=packed, rows=32), *scales
    )


def turned(n: int, rows: int, engine: Any, place: Any = sb) -> Any:
    return lambda: nisa.nc_transpose(place(rows, rows=n), sb(n, rows=rows), engine=engine)


SWITCH = 15  # cycles between two of them
PASS = 2 * P * 50 * 301  # operations of the products below
PRODUCTS = [
    Row("nc_matmul", "a row per cycle", product(301, 50), cycles(301 + SWITCH, PASS)),
    Row("nc_matmul", "few rows: its columns", product(9, 50), cycles(50, 2 * P * 50 * 9)),
    Row("nc_matmul", "few rows, many columns", product(9, 101), cycles(64, 2 * P * 101 * 9)),
    Row("nc_matmul", "float32", product(301, 50, F32), cycles(4 * 301 + SWITCH, PASS)),
    Row("nc_matmul", "float32, few rows", product(9, 50, F32), cycles(4 * 50, 2 * P * 50 * 9)),
    Row(
        "nc_matmul",
        "float32 of ones and zeros",
        product(301, 50, F32, is_moving_onezero=True),
        cycles(2 * 301 + SWITCH, PASS),
    ),
    Row(
        "nc_matmul",
        "float32 by ones and zeros",
        product(301, 50, F32, is_stationary_onezero=True),
        cycles(2 * 301 + SWITCH, PASS),
    ),
    Row(
        "nc_matmul",
        "ones and zeros in bfloat16",
        product(301, 50, is_moving_onezero=True),
        cycles(301 + SWITCH, PASS),
    ),
    Row("nc_matmul", "two rows at a time", double(301, 50), cycles(301 + SWITCH, 2 * PASS)),
    Row("nc_matmul_mx", "", scaled_product, cycles(315, 8 * 32 * 20 * 300, known=False), "trn3"),
    Row("nc_transpose", "Tensor", turned(20, 101, ENGINE.tensor, ps), cycles(101 + SWITCH)),
    Row("nc_transpose", "Tensor, few rows", turned(101, 20, ENGINE.tensor, ps), cycles(64)),
    Row("nc_transpose", "Vector", turned(32, 30, ENGINE.vector), started(32)),
    Row(
        "quantize_mx",
        "four at a time",
        lambda: nisa.quantize_mx(
            sb(101, dtype=nl.float8_e4m3fn_x4, rows=32),
            sb(404, dtype=BF16, rows=32),
            sb(101, dtype=nl.uint8, rows=32),
        ),
        started(101),
        "trn3",
    ),
]  # fmt: skip
