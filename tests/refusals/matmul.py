"""The Tensor engine."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.memory import _filled as made
from tests.refusals.rule import BF16, E2M1_X4, E4M3, E5M2, E5M2_X4, F16, F32, FN, FN_X4, I32, U8, Rule, ps, sb

MM = "nki/api/nki/isa (nc_matmul)"
MX = "nki/api/nki/isa (nc_matmul_mx)"
T = "nki/api/nki/isa (nc_transpose)"
QUANTIZE = "nki/api/nki/isa (quantize_mx)"


def mm(k=64, m=32, n=48, k2=None, s=F32, v=F32, d=F32, places=(ps, sb, sb), **options):
    dst = places[0](m, n, dtype=d)
    left, right = places[1](k, m, dtype=s), places[2](k2 or k, n, dtype=v)
    for tile in (left, right):
        nisa.memset(tile, value=0)
    nisa.nc_matmul(dst, left, right, **options)


def double(rows=2, dtype=E4M3, **options):
    left, right = sb(64, rows, 32, dtype=dtype), sb(64, rows, 48, dtype=dtype)
    for tile in (left, right):
        nisa.memset(tile, value=0)
    nisa.nc_matmul(ps(32, 48), left, right, perf_mode=nisa.matmul_perf_mode.double_row, **options)


def mx(k=128, m=64, n=32, dtype=E5M2_X4, d=F32, scale=U8, place=ps, data=sb, scales=sb):
    left, right = data(k, m, dtype=dtype), data(k, n, dtype=dtype)
    a, b = scales(k, m, dtype=scale), scales(k, n, dtype=scale)
    for tile in (left, right, a, b):
        nisa.memset(tile, value=0)
    nisa.nc_matmul_mx(place(m, n, dtype=d), left, right, a, b)


def transpose(shape=(64, 32), d=F32, s=F32, place=ps, engine=nisa.engine.tensor):
    nisa.nc_transpose(place(shape[1], shape[0], dtype=d), made(*shape, dtype=s), engine=engine)


def quantize(p=64, f=32, s=BF16, d=FN_X4, place=sb, scale=U8):
    nisa.quantize_mx(place(p, f // 4, dtype=d), made(p, f, dtype=s), sb(p, f // 4, dtype=scale))


RULES = [
    Rule("matmul-contraction", "`stationary` and `moving` have as many partitions", MM, "?", lambda b: mm(k2=32 if b else 64)),
    Rule("matmul-stationary-columns", "`stationary` has at most 128 columns", MM, "?", lambda b: nisa.nc_matmul(ps(128, 48), made(64, 129)[:, 0:129] if b else made(64, 128), made(64, 48))),
    Rule("matmul-moving-columns", "`moving` has at most 512 columns before NeuronCore-v4", MM, "?", lambda b: mm(n=513 if b else 512)),
    Rule("matmul-moving-v4", "`moving` has at most 4096 columns for a float32 `dst` on NeuronCore-v4", MM, "?", lambda b: mm(n=4097 if b else 4096, s=BF16, v=BF16), platform="trn3"),
    Rule("matmul-dst-psum", "`dst` of a matmul is in PSUM", MM, "?", lambda b: mm(places=(sb if b else ps, sb, sb))),
    Rule("matmul-stationary-sbuf", "`stationary` is in SBUF", MM, "?", lambda b: mm(places=(ps, ps if b else sb, sb))),
    Rule("matmul-moving-sbuf", "`moving` is in SBUF", MM, "?", lambda b: mm(places=(ps, sb, ps if b else sb))),
    Rule("matmul-dst-float32", "`dst` is float32 before NeuronCore-v4", MM, "?", lambda b: mm(d=BF16 if b else F32)),
    Rule("matmul-integers", "Operands of a matmul are floating-point", MM + "; NCC_EVRF035", "?", lambda b: mm(s=I32 if b else F32, v=I32 if b else F32)),
    Rule("matmul-float32-pair", "float32 is multiplied by float32 only", MM, "?", lambda b: mm(s=F32, v=BF16 if b else F32)),
    Rule("matmul-fn-v4", "float8_e4m3fn needs NeuronCore-v4 in a matmul", MM, "?", lambda b: mm(s=FN, v=FN), good_on="trn3"),
    Rule("matmul-fn-legacy", "float8_e4m3 and float8_e4m3fn can't be mixed", MM, "?", lambda b: mm(s=FN, v=E4M3 if b else FN), platform="trn3"),
    Rule("matmul-double-v3", "`double_row` needs NeuronCore-v3", MM, "?", lambda b: double(), platform="trn1", good_on="trn2"),
    Rule("matmul-double-fp8", "`double_row` takes FP8", MM, "?", lambda b: double(dtype=BF16 if b else E4M3)),
    Rule("matmul-double-shape", "With `double_row` the first free dimension is 2", MM, "?", lambda b: double(rows=3 if b else 2)),
    Rule("matmul-tile-both", "`tile_position` and `tile_size` are given together", MM, "?", lambda b: mm(k=32, m=32, tile_position=(0, 0), **({} if b else {"tile_size": (32, 32)}))),
    Rule("matmul-tile-row", "`start_row` is a multiple of `row_size`", MM, "?", lambda b: mm(k=32, m=32, tile_position=(16 if b else 32, 0), tile_size=(32, 32))),
    Rule("matmul-tile-fits", "`stationary` isn't larger than `tile_size`", MM, "?", lambda b: mm(k=64 if b else 32, m=32, tile_position=(0, 0), tile_size=(32, 32))),
    Rule("mx-v4", "`nc_matmul_mx` needs NeuronCore-v4", MX + "; report NCC_IBIR530", "?", lambda b: mx(), good_on="trn3"),
    Rule("mx-packed", "Operands of `nc_matmul_mx` are packed by four", MX, "?", lambda b: mx(dtype=E5M2 if b else E5M2_X4), platform="trn3"),
    Rule("mx-rows", "`nc_matmul_mx` contracts a multiple of 32 partitions", MX, "?", lambda b: mx(k=48 if b else 64), platform="trn3"),
    Rule("mx-even", "`stationary` of `nc_matmul_mx` has an even number of columns", MX, "?", lambda b: mx(m=63 if b else 64), platform="trn3"),
    Rule("mx-scales", "Scales are uint8 or float8_e8m0fnu", MX, "?", lambda b: mx(scale=I32 if b else U8), platform="trn3"),
    Rule("mx-dst", "`dst` of `nc_matmul_mx` is in PSUM", MX, "?", lambda b: mx(place=sb if b else ps), platform="trn3"),
    Rule("transpose-type", "`nc_transpose` keeps the dtype", T, "?", lambda b: transpose(d=BF16 if b else F32)),
    Rule("transpose-psum", "The Tensor engine transposes into PSUM", T, "?", lambda b: transpose(place=sb if b else ps)),
    Rule("transpose-vector", "The Vector engine transposes 32 by 32", T, "?", lambda b: transpose((64, 32) if b else (32, 32), engine=nisa.engine.vector)),
    Rule("transpose-size", "The Tensor engine transposes at most 128 columns", T, "?", lambda b: nisa.nc_transpose(ps(128, 64), made(64, 129 if b else 128), engine=nisa.engine.tensor)),
    Rule("quantize-type", "`quantize_mx` takes float16 and bfloat16", QUANTIZE, "?", lambda b: quantize(s=F32 if b else BF16), platform="trn3"),
    Rule("quantize-out", "`quantize_mx` makes packed FP8", QUANTIZE, "?", lambda b: quantize(d=E2M1_X4 if b else FN_X4), platform="trn3"),
    Rule("quantize-rows", "`quantize_mx` takes a multiple of 32 partitions", QUANTIZE, "?", lambda b: quantize(p=48 if b else 64), platform="trn3"),
    Rule("quantize-columns", "`quantize_mx` takes a multiple of 4 elements per partition", QUANTIZE, "?", lambda b: nisa.quantize_mx(sb(64, 8, dtype=FN_X4), made(64, 34 if b else 32, dtype=BF16), sb(64, 8, dtype=U8)), platform="trn3"),
    Rule("quantize-sbuf", "`quantize_mx` reads SBUF", QUANTIZE, "?", lambda b: nisa.quantize_mx(sb(64, 8, dtype=FN_X4), made(64, 32, dtype=BF16, buffer=nl.psum if b else nl.sbuf), sb(64, 8, dtype=U8)), platform="trn3"),
    Rule("quantize-v4", "`quantize_mx` needs NeuronCore-v4", QUANTIZE, "?", lambda b: quantize(), good_on="trn3"),
]
