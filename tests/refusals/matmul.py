"""The Tensor engine."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import (
    BF16,
    E2M1_X4,
    E4M3,
    E5M2,
    E5M2_X4,
    F32,
    FN,
    FN_X4,
    I32,
    U8,
    Rule,
    made,
    ps,
    sb,
)

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
    Rule(
        "matmul-contraction",
        "`stationary` and `moving` have as many partitions",
        MM,
        "both are the contraction dimension and must be equal",
        lambda b: mm(k2=32 if b else 64),
    ),
    Rule(
        "matmul-stationary-columns",
        "`stationary` has at most 128 columns",
        MM,
        "stationary has 129 elements in its free dimensions",
        lambda b: nisa.nc_matmul(
            ps(128, 48), made(64, 129)[:, 0:129] if b else made(64, 128), made(64, 48)
        ),
    ),
    Rule(
        "matmul-moving-columns",
        "`moving` has at most 512 columns before NeuronCore-v4",
        MM,
        "moving has 513 elements in its free dimensions",
        lambda b: mm(n=513 if b else 512),
    ),
    Rule(
        "matmul-moving-v4",
        "`moving` has at most 4096 columns for a float32 `dst` on NeuronCore-v4",
        MM,
        "a psum tensor of shape (32, 4097) and dtype float32 needs 16388 bytes per partition",
        lambda b: mm(n=4097 if b else 4096, s=BF16, v=BF16),
        platform="trn3",
    ),
    Rule(
        "matmul-dst-psum",
        "`dst` of a matmul is in PSUM",
        MM,
        "dst is in sbuf",
        lambda b: mm(places=(sb if b else ps, sb, sb)),
    ),
    Rule(
        "matmul-stationary-sbuf",
        "`stationary` is in SBUF",
        MM,
        "stationary is in psum",
        lambda b: mm(places=(ps, ps if b else sb, sb)),
    ),
    Rule(
        "matmul-moving-sbuf",
        "`moving` is in SBUF",
        MM,
        "moving is in psum",
        lambda b: mm(places=(ps, sb, ps if b else sb)),
    ),
    Rule(
        "matmul-dst-float32",
        "`dst` is float32 before NeuronCore-v4",
        MM,
        "dst has dtype bfloat16",
        lambda b: mm(d=BF16 if b else F32),
    ),
    Rule(
        "matmul-integers",
        "Operands of a matmul are floating-point",
        MM + "; NCC_EVRF035",
        "stationary has dtype int32",
        lambda b: mm(s=I32 if b else F32, v=I32 if b else F32),
    ),
    Rule(
        "matmul-float32-pair",
        "`float32` is multiplied by `float32` only",
        MM,
        "stationary is float32, moving bfloat16",
        lambda b: mm(s=F32, v=BF16 if b else F32),
    ),
    Rule(
        "matmul-fn-v4",
        "`float8_e4m3fn` needs NeuronCore-v4 in a matmul",
        MM,
        "float8_e4m3fn in nc_matmul needs NeuronCore-v4 or later",
        lambda b: mm(s=FN, v=FN),
        good_on="trn3",
    ),
    Rule(
        "matmul-fn-legacy",
        "`float8_e4m3` and float8_e4m3fn can't be mixed",
        MM,
        "the two e4m3 formats can't be mixed in one matmul",
        lambda b: mm(s=FN, v=E4M3 if b else FN),
        platform="trn3",
    ),
    Rule(
        "matmul-double-v3",
        "`double_row` needs NeuronCore-v3",
        MM,
        "perf_mode double_row needs NeuronCore-v3 or later",
        lambda b: double(),
        platform="trn1",
        good_on="trn2",
    ),
    Rule(
        "matmul-double-fp8",
        "`double_row` takes FP8",
        MM,
        "perf_mode double_row takes float8_e4m3, float8_e4m3fn, float8_e5m2",
        lambda b: double(dtype=BF16 if b else E4M3),
    ),
    Rule(
        "matmul-double-shape",
        "With `double_row` the first free dimension is 2",
        MM,
        "perf_mode double_row takes",
        lambda b: double(rows=3 if b else 2),
    ),
    Rule(
        "matmul-tile-both",
        "`tile_position` and `tile_size` are given together",
        MM,
        "tile_position=(0, 0), tile_size=None",
        lambda b: mm(k=32, m=32, tile_position=(0, 0), **({} if b else {"tile_size": (32, 32)})),
    ),
    Rule(
        "matmul-tile-size",
        "`tile_size` is that of a tile of the array: 32, 64 or 128 rows and columns",
        MM,
        "tile_size=(16, 32); documented are 32, 64, 128 on trn2",
        lambda b: mm(k=16, m=32, tile_position=(0, 0), tile_size=(16 if b else 32, 32)),
        warns="nki-library's gdn_cte has tiles of 16",
        code="matmul-tile-size",
    ),
    Rule(
        "matmul-tile-row",
        "`start_row` is a multiple of `row_size`",
        MM,
        "tile_position row 16; allowed: multiples of the tile's 32 from 0, below 128",
        lambda b: mm(k=32, m=32, tile_position=(16 if b else 32, 0), tile_size=(32, 32)),
    ),
    Rule(
        "matmul-tile-fits",
        "`stationary` isn't larger than `tile_size`",
        MM,
        "the operands use 64 rows of the array, tile_size allows 32",
        lambda b: mm(k=64 if b else 32, m=32, tile_position=(0, 0), tile_size=(32, 32)),
    ),
    Rule(
        "mx-v4",
        "`nc_matmul_mx` needs NeuronCore-v4",
        MX + "; report NCC_IBIR530",
        "nisa.nc_matmul_mx needs NeuronCore-v4 or later",
        lambda b: mx(),
        good_on="trn3",
    ),
    Rule(
        "mx-packed",
        "Operands of `nc_matmul_mx` are packed by four",
        MX,
        "stationary has dtype float8_e5m2; allowed: float4_e2m1fn_x4, float8_e4m3fn_x4",
        lambda b: mx(dtype=E5M2 if b else E5M2_X4),
        platform="trn3",
    ),
    Rule(
        "mx-rows",
        "`nc_matmul_mx` contracts a multiple of 32 partitions",
        MX,
        "must be a multiple of 32, at most 128",
        lambda b: mx(k=48 if b else 64),
        platform="trn3",
    ),
    Rule(
        "mx-even",
        "`stationary` of `nc_matmul_mx` has an even number of columns",
        MX,
        "stationary has 63 elements in its free dimensions",
        lambda b: mx(m=63 if b else 64),
        platform="trn3",
    ),
    Rule(
        "mx-scales",
        "Scales are uint8 or float8_e8m0fnu",
        MX,
        "stationary_scale has dtype int32",
        lambda b: mx(scale=I32 if b else U8),
        platform="trn3",
    ),
    Rule(
        "mx-dst",
        "`dst` of `nc_matmul_mx` is in PSUM",
        MX,
        "dst is in sbuf",
        lambda b: mx(place=sb if b else ps),
        platform="trn3",
    ),
    Rule(
        "transpose-type",
        "`nc_transpose` keeps the dtype",
        T,
        "a transpose doesn't convert, they must be the same",
        lambda b: transpose(d=BF16 if b else F32),
    ),
    Rule(
        "transpose-wide-v2",
        "`nc_transpose` keeps the dtype of 16-bit floats on trn1",
        T,
        "the documentation asks for one dtype",
        lambda b: transpose(s=BF16, d=F32 if b else BF16),
        platform="trn1",
        warns="the Tensor engine of trn1 multiplies, and published kernels take float32",
        code="transpose-dtype",
    ),
    Rule(
        "transpose-psum",
        "The Tensor engine transposes into PSUM",
        T,
        "the Tensor engine transposes from SBUF to PSUM",
        lambda b: transpose(place=sb if b else ps),
    ),
    Rule(
        "transpose-vector",
        "The Vector engine transposes 32 by 32",
        T,
        "data has 64 partitions and 32 elements in each",
        lambda b: transpose((64, 32) if b else (32, 32), engine=nisa.engine.vector),
    ),
    Rule(
        "transpose-size",
        "The Tensor engine transposes at most 128 columns",
        T,
        "dst has 128 partitions and 64 elements in each",
        lambda b: nisa.nc_transpose(
            ps(128, 64), made(64, 129 if b else 128), engine=nisa.engine.tensor
        ),
    ),
    Rule(
        "quantize-type",
        "`quantize_mx` takes float16 and bfloat16",
        QUANTIZE,
        "src has dtype float32",
        lambda b: quantize(s=F32 if b else BF16),
        platform="trn3",
    ),
    Rule(
        "quantize-out",
        "`quantize_mx` makes packed FP8",
        QUANTIZE,
        "dst has dtype float4_e2m1fn_x4; allowed: float8_e4m3fn_x4, float8_e5m2_x4",
        lambda b: quantize(d=E2M1_X4 if b else FN_X4),
        platform="trn3",
    ),
    Rule(
        "quantize-rows",
        "`quantize_mx` takes a multiple of 32 partitions",
        QUANTIZE,
        "must be a multiple of 32, at most 128",
        lambda b: quantize(p=48 if b else 64),
        platform="trn3",
    ),
    Rule(
        "quantize-columns",
        "`quantize_mx` takes a multiple of 4 elements per partition",
        QUANTIZE,
        "src has 34 elements per partition",
        lambda b: nisa.quantize_mx(
            sb(64, 8, dtype=FN_X4), made(64, 34 if b else 32, dtype=BF16), sb(64, 8, dtype=U8)
        ),
        platform="trn3",
    ),
    Rule(
        "quantize-sbuf",
        "`quantize_mx` reads SBUF",
        QUANTIZE,
        "src is in psum",
        lambda b: nisa.quantize_mx(
            sb(64, 8, dtype=FN_X4),
            made(64, 32, dtype=BF16, buffer=nl.psum if b else nl.sbuf),
            sb(64, 8, dtype=U8),
        ),
        platform="trn3",
    ),
    Rule(
        "quantize-v4",
        "`quantize_mx` needs NeuronCore-v4",
        QUANTIZE,
        "nisa.quantize_mx needs NeuronCore-v4 or later",
        lambda b: quantize(),
        good_on="trn3",
    ),
]
