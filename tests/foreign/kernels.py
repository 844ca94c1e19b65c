"""Kernels of our own with constructs of published ones that aren't built around one instruction.

They are as those are that have the construct, and smaller.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.dtypes.mx import unpack_x4
from tests.foreign.contested import CONTESTED
from tests.foreign.older import OLDER
from tests.foreign.syntax import SYNTAX
from tests.foreign.written import BF16, Written, whole

# ---- two cores -----------------------------------------------------------------------------------


def exchanges(x):
    """Each core sends its tile of three and of four dimensions, and adds what it gets."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(total, x[me])
    for shape in ((8, 3, 4), (8, 2, 2, 3)):
        mine = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        theirs = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(mine, x[me].reshape(shape))
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        nisa.tensor_tensor(total, total, theirs.reshape((8, 12)), nl.add)
    nisa.dma_copy(out[me], total)
    return out


def waits_with_an_index(x):
    """A barrier that names a tile of SBUF: what the other core stored is there afterwards."""
    me = nl.program_id(0)
    shared = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(index, value=3)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[me])
    nisa.dma_copy(shared[me], tile)
    nisa.core_barrier(index, (0, 1))
    nisa.dma_copy(tile, shared[1 - me])
    nki.isa.dma_copy(out[me], tile)
    return out


def exchanges_types(x):
    """Tiles of several types, on a pipe each; bits arrive."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 4, 8, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    types = (nl.float16, nl.uint8, nl.int32, nl.uint32)
    for n in range(4):
        mine = nl.ndarray((8, 12), dtype=types[n], buffer=nl.sbuf)
        theirs = nl.ndarray((8, 12), dtype=types[n], buffer=nl.sbuf)
        result = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(result, x[me])
        nisa.tensor_copy(mine, result)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=n)
        nisa.tensor_copy(result, theirs)
        nisa.dma_copy(out[me, n], result)
    return out


def exchanges_packed(x):
    """A tile of a packed type, from one core to the other."""
    me = nl.program_id(0)
    kind = nl.float8_e4m3fn_x4
    out = nl.ndarray((2, 8, 12), dtype=nl.uint32, buffer=nl.shared_hbm)
    mine = nl.ndarray((8, 12), dtype=kind, buffer=nl.sbuf)
    theirs = nl.ndarray((8, 12), dtype=kind, buffer=nl.sbuf)
    nisa.dma_copy(mine, x[me])
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(out[me], theirs.view(nl.uint32))
    return out


def gathers_in_sbuf(x):
    """Two ranks gather tiles of SBUF, given as lists."""
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    both = nl.ndarray((8, 24), dtype=x.dtype, buffer=nl.sbuf)
    group = ncc.ReplicaGroup([[0, 1]])
    ncc.all_gather(srcs=[tile], dsts=[both], replica_group=group, collective_dim=1)
    out = nl.ndarray((8, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, both)
    return out


# ---- positions, scales ---------------------------------------------------------------------------


def finds_positions(x):
    """Positions of what isn't 0 in tiles of three dimensions, by way of private HBM."""
    tile = nl.ndarray((128, 1, 12), dtype=nl.int32, buffer=nl.sbuf)
    found = nl.ndarray((128, 1, 13), dtype=nl.int32, buffer=nl.sbuf)
    kept = nl.ndarray((128, 13), dtype=nl.int32, buffer=nl.private_hbm)
    nisa.dma_copy(tile, x.reshape((128, 1, 12)))
    nisa.memset(found, value=7)
    nisa.nonzero_with_count(found, tile)
    nisa.dma_copy(kept, found.reshape((128, 13)))
    out = nl.ndarray((128, 13), dtype=nl.int32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, kept)
    return out


def positions(x):
    want = np.full((128, 13), 7)
    for p in range(0, 128, 16):
        (where,) = np.nonzero(x[p])
        want[p] = [*where, *[-1] * (12 - len(where)), len(where)]
    return want


def scales_groups(x):
    """Packed values of four dimensions with their scales, multiplied out again by hand."""
    wide = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf)
    tile = wide.ap(pattern=[[16, 32], [8, 2], [4, 2], [1, 4]], dtype=x.dtype)
    packed = nl.ndarray((32, 2, 2), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scale = nl.ndarray((32, 2, 2), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.memset(scale, value=0)
    nisa.dma_copy(tile, x.reshape((32, 2, 2, 4)))
    nisa.quantize_mx(packed, tile, scale)
    deep = (32, 2, 1, 2)  # once more, all of it of four dimensions
    nisa.quantize_mx(packed.reshape(deep), tile, scale.reshape(deep))
    words = nl.ndarray((32, 4), dtype=nl.uint32, buffer=nl.shared_hbm)
    exponents = nl.ndarray((32, 4), dtype=nl.uint8, buffer=nl.shared_hbm)
    nisa.dma_copy(words, packed.view(nl.uint32).reshape((32, 4)))
    nisa.dma_copy(exponents, scale.reshape((32, 4)))
    return words, exponents


def grouped(x):
    """Groups of 8 rows and 4 columns, scaled by the exponent of the largest value, less 7."""
    groups = x.astype(np.float64).reshape(4, 8, 4, 4)
    exponent = np.floor(np.log2(np.abs(groups).max(axis=(1, 3)))) - 7
    values = (groups / 2.0 ** exponent[:, None, :, None]).reshape(32, 16)
    words = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint32)
    scale = np.zeros((32, 4))
    scale[:4] = exponent + 127
    return words, scale


# ---- packed types --------------------------------------------------------------------------------


def multiplies_packed(a, b, sa, sb):
    """Operands and scales of three dimensions, the result in bfloat16."""
    k = a.shape[0]
    assert a.dtype in (nl.float4_e2m1fn_x4, nl.float8_e5m2_x4)
    stationary = nl.ndarray((k, 2, 4), dtype=a.dtype, buffer=nl.sbuf)
    moving = nl.ndarray((k, 3, 4), dtype=b.dtype, buffer=nl.sbuf)
    scale_a = nl.ndarray((k, 2, 4), dtype=nl.uint8, buffer=nl.sbuf)
    scale_b = nl.ndarray((k, 3, 4), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.dma_copy(stationary, a.reshape((k, 2, 4)))
    nisa.dma_copy(moving, b.reshape((k, 3, 4)))
    nisa.dma_copy(scale_a, sa.reshape((k, 2, 4)))
    nisa.dma_copy(scale_b, sb.reshape((k, 3, 4)))
    bank = nl.ndarray((8, 12), dtype=nl.bfloat16, buffer=nl.psum)
    nisa.nc_matmul_mx(bank, stationary, moving, scale_a, scale_b)
    tile = nl.ndarray((8, 12), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(tile, bank)
    out = nl.ndarray((8, 12), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def product(a, b, sa, sb):
    """Sums over groups of 8 rows, which share a scale for each column."""
    k, left, right = len(a), dtypes.of(a.dtype), dtypes.of(b.dtype)
    parts = [
        unpack_x4(values.view(dtype.storage), dtype).astype(np.float64).reshape(k // 8, 8, -1, 4)
        for values, dtype in ((a, left), (b, right))
    ]
    rows = [g // 4 * 32 + g % 4 for g in range(k // 8)]
    x, y = (2.0 ** (scales[rows].astype(np.float64) - 127) for scales in (sa, sb))
    return np.einsum("gmn,gm,gn->mn", np.einsum("gpmx,gpnx->gmn", *parts), x, y)


def views_bytes_as_packed(a, b, sa, sb):
    """float8 tiles, four of whose elements are seen as one packed one."""
    k = a.shape[0]
    left = nl.ndarray((k, 32), dtype=nl.float8_e4m3fn, buffer=nl.sbuf)
    right = nl.ndarray((k, 48), dtype=nl.float8_e4m3fn, buffer=nl.sbuf)
    scale_a = nl.ndarray((k, 8), dtype=nl.uint8, buffer=nl.sbuf)
    scale_b = nl.ndarray((k, 12), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    nisa.dma_copy(scale_a, sa)
    nisa.dma_copy(scale_b, sb)
    bank = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.psum)
    kind = nl.float8_e4m3fn_x4
    nisa.nc_matmul_mx(bank, left.view(kind), right.view(kind), scale_a, scale_b)
    tile = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(tile, bank)
    out = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def eights(a, b, sa, sb):
    packed = nl.float8_e4m3fn_x4.dtype
    return product(a.view(packed), b.view(packed), sa, sb)


FOURS, EIGHTS = nl.float4_e2m1fn_x4.dtype, nl.float8_e5m2_x4.dtype


def packed(columns, dtype):
    """Random elements without NaN and infinity."""
    if dtype == FOURS:
        return whole(32, columns, dtype=np.uint16, below=1 << 15).view(dtype)
    words = whole(32, columns, dtype=np.uint32, below=1 << 30) & np.uint32(0x33333333)
    return words.view(dtype)


def multiplies(left, right):
    arrays = (packed(8, left), packed(12, right), scales(8, 1), scales(12, 2))
    return Written(multiplies_packed, arrays, product, tolerance=1e-2, platform="trn3")


def scales(columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(125, 130, (32, columns)).astype(np.uint8)


# ---- names of the language -----------------------------------------------------------------------


def asks_the_platform(x):
    """What kernels ask before they choose: the generation, the tile's sizes, a mode."""
    mode = nisa.matmul_perf_mode.none
    newest = nisa.get_nc_version() >= nisa.nc_version.gen3
    assert newest and mode not in (nisa.matmul_perf_mode.double_row,)
    columns, rest = divmod(x.shape[1], nl.tile_size.pmax)
    print("columns", columns, rest)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x, dge_mode=nisa.dge_mode.none)
    nisa.tensor_copy(tile, tile, engine=nisa.scalar_engine)
    least = nl.reciprocal(nl.reciprocal(nl.relu(nl.minimum(tile, tile))))
    least = nl.broadcast_to(least, shape=(8, 12))
    nisa.tensor_tensor(tile, least, tile, nl.add, engine=nisa.gpsimd_engine)
    out = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def activates(x):
    """Functions of the Scalar engine, as a kernel picks them from a table."""
    out = nl.ndarray((7, 8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    functions = {"silu": nl.silu, "gelu": nl.gelu_apprx_sigmoid, "sigmoid": nl.sigmoid}
    functions |= {"abs": nl.abs, "rsqrt": nl.rsqrt, "log": nl.log, "sqrt": nl.sqrt}
    names = ("silu", "gelu", "sigmoid", "abs", "rsqrt", "log", "sqrt")
    for n in nl.sequential_range(7):
        result = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(result, functions[names[n]], tile, scale=0.25)
        nisa.dma_copy(out[n], result)
    return out


def activated(x):
    y = 0.25 * x.astype(np.float64)
    gates = [1 / (1 + np.exp(-y)), 1 / (1 + np.exp(-1.702 * y))]
    root = np.sqrt(y)
    return np.stack([y * gates[0], y * gates[1], gates[0], y, 1 / root, np.log(y), root])


def counts_equals(x):
    """How many elements of each row are 3."""
    out = nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(total, value=0)
    nisa.dma_copy(tile, x)
    for n in nl.range(12):
        same = nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(same, tile[:, n : n + 1], nl.equal, 3.0, engine=nisa.vector_engine)
        nisa.tensor_scalar(same, same, nl.greater, 0.5, op1=nl.logical_and, operand1=1.0)
        nisa.tensor_tensor(total, total, same, nl.add)
    nisa.dma_copy(out, total)
    return out


def of_five_dimensions(x):
    """Tensors of five dimensions in SBUF and HBM, and a float8 tile on the way."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    small = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_copy(small, tile)
    nisa.tensor_copy(tile, small)
    nisa.dma_copy(out, tile)
    return out


KERNELS = (
    CONTESTED
    | SYNTAX
    | OLDER
    | {
        "exchanges": Written(
            exchanges, (whole(2, 8, 12, dtype=BF16),), lambda x: x + 2 * x[::-1], lnc=2
        ),
        "waits_with_an_index": Written(
            waits_with_an_index, (whole(2, 8, 12),), lambda x: x[::-1], lnc=2
        ),
        "multiplies_4_by_8": multiplies(FOURS, EIGHTS),
        "multiplies_4_by_4": multiplies(FOURS, FOURS),
        "multiplies_4_by_8n": multiplies(FOURS, nl.float8_e4m3fn_x4.dtype),
        "multiplies_8_by_8": multiplies(EIGHTS, EIGHTS),
        "views_bytes_as_packed": Written(
            views_bytes_as_packed,
            (
                whole(32, 32).astype(ml_dtypes.float8_e4m3fn),
                whole(32, 48, seed=1).astype(ml_dtypes.float8_e4m3fn),
                scales(8, 1),
                scales(12, 2),
            ),
            eights,
            tolerance=1e-5,
            platform="trn3",
        ),
        "exchanges_types": Written(
            exchanges_types,
            (whole(2, 8, 12),),
            lambda x: np.broadcast_to(x[::-1, None], (2, 4, 8, 12)),
            lnc=2,
        ),
        "exchanges_packed": Written(
            exchanges_packed,
            (whole(2, 8, 12, dtype=np.uint32, below=1 << 30).view(nl.float8_e4m3fn_x4.dtype),),
            lambda x: x.view(np.uint32)[::-1],
            lnc=2,
            platform="trn3",
        ),
        "gathers_in_sbuf": Written(
            gathers_in_sbuf,
            (whole(8, 12, dtype=BF16),),
            lambda x: np.concatenate([x, x], axis=1),
            ranks=2,
        ),
        "finds_positions": Written(
            finds_positions, (whole(128, 12, dtype=np.int32) % 2,), positions, platform="trn3"
        ),
        "scales_groups": Written(
            scales_groups, (whole(32, 16, dtype=BF16),), grouped, platform="trn3"
        ),
        "asks_the_platform": Written(
            asks_the_platform, (whole(8, 12),), lambda x: 2 * x, tolerance=1e-2
        ),
        "counts_equals": Written(
            counts_equals, (whole(8, 12),), lambda x: (x == 3).sum(1, keepdims=True)
        ),
        "activates": Written(activates, (whole(8, 12),), activated, tolerance=2e-2),
        "of_five_dimensions": Written(of_five_dimensions, (whole(4, 2, 3, 2, 5),), lambda x: x),
    }
)
