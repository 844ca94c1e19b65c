"""nisa.nc_matmul: `dst = stationary.T @ moving` on the Tensor engine, and its transpose mode."""

from __future__ import annotations

from nki_dist import dtypes as d
from nki_dist.errors import invalid
from nki_dist.isa import matmul as m
from nki_dist.isa.effects import Bits, Effects
from nki_dist.isa.enums import matmul_perf_mode
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.operands import FLAG, PSUM, SBUF, Choice, Custom, listed, read, write
from nki_dist.isa.spec import Arch, Cost, Kit, Operation, instruction, require_generation
from nki_dist.isa.tensor_engine import Factors
from nki_dist.isa.timing_rules import array_tile, product_cycles
from nki_dist.isa.transpose import select_columns
from nki_dist.program import Access, Instruction

FP8 = frozenset({d.float8_e4m3, d.float8_e4m3fn, d.float8_e5m2})
WIDE = frozenset({d.float32, d.tfloat32})
INPUTS = FP8 | WIDE | {d.bfloat16, d.float16}


def _pads(i: Instruction) -> bool:
    return i["stationary"].dtype.bits == 8 and i["dst"].dtype.bits == 16


_BITS = Bits(("dst", "stationary"), when=lambda i: i["is_transpose"], pads=_pads)


@instruction(
    engines="tensor",
    effects=Effects(m.multiplied("stationary moving"), partial=False, bits=_BITS, state=None),
    accumulates=True,
    chains=True,
    exactness="approximate: float32 sums over the contraction, in an order that isn't published",
)
def nc_matmul(
    dst=write(PSUM, indirect=32),
    stationary=read(SBUF, dtypes=INPUTS, indirect=32),
    moving=read(SBUF, dtypes=INPUTS, indirect=32),
    is_stationary_onezero=FLAG.default(False),
    is_moving_onezero=FLAG.default(False),
    is_transpose=FLAG.default(False),
    accumulate=Custom(m.accumulate_flag).default(None),
    tile_position=Custom(m.pair).default(()),
    tile_size=Custom(m.pair).default(()),
    perf_mode=Choice(matmul_perf_mode).default(matmul_perf_mode.none),
    name=None,
):
    """`dst = stationary.T @ moving`, contracted over partitions.

    Args:
        dst: PSUM tile (M, N) within one bank; float32, on NeuronCore-v4 also bfloat16.
        stationary: SBUF tile (K, M), K and M at most 128; free dimensions are flattened.
        moving: SBUF tile (K, N), N at most 512 (more on NeuronCore-v4).
        is_stationary_onezero, is_moving_onezero: the operand holds ones and zeros only; a hint
            that changes time, not values.
        is_transpose: move data instead of multiplying: `moving` is an identity (or picks columns)
            and `stationary` arrives transposed, bit by bit. On NeuronCore-v2 it multiplies.
        accumulate: True adds to dst, False replaces it; None replaces on the first matmul to a
            PSUM element and adds afterwards.
        tile_position, tile_size: (row, column) of a tile of the array, and its size: 32, 64 or
            128 (64 or 128 on NeuronCore-v2); another one takes the smallest tile that holds it.
        perf_mode: "double_row" contracts partitions and the first free dimension, of size 2; FP8
            only, from NeuronCore-v3.

    Operands are taken as float32, sums are float32. A bfloat16 dst is rounded each time: what it
    holds is made float32, the product is added, and the sum is rounded to nearest even. So the
    Trainium3 guide has it ("BF16 Matmul Results in PSUM"), and not one sum in float32 over all that
    is added, which a comment in nki-library (mla_vup_oproj_cte) expects. Stochastic rounding, which
    hardware can do there, isn't modelled.

    Raises:
        NkiValidationError: shapes, dtypes or modes don't fit.
    """
    return locals()


def _double(i: Instruction) -> bool:
    return i["perf_mode"] is matmul_perf_mode.double_row


def _free(a: Access, double: bool) -> int:
    return a.free_size // 2 if double else a.free_size


@nc_matmul.check
def _shapes(i: Instruction, arch: Arch) -> None:
    stationary, moving, double = i["stationary"], i["moving"], _double(i)
    if double:
        _check_double_row(i, arch)
    columns, most = _free(stationary, double), arch.stationary_free_max
    if columns > most:
        message = (
            f"stationary has {columns} elements in its free dimensions (shape "
            f"{stationary.shape}); at most {most}"
        )
        raise invalid(message, code="matmul-stationary-size", got=columns, most=most)
    m.check_sizes(i, columns, _free(moving, double), arch)
    m.check_tiling(i, arch, stationary.shape[0], columns, row_only=double)


def _check_double_row(i: Instruction, arch: Arch) -> None:
    require_generation(arch, 3, "perf_mode double_row")
    for name in ("stationary", "moving"):
        a = i[name]
        if a.dtype not in FP8:
            message = f"{name} has dtype {a.dtype}; perf_mode double_row takes " + listed(FP8)
            raise invalid(message, code="matmul-dtypes", got=a.dtype, allowed=FP8)
        if len(a.shape) < 3 or a.shape[1] != 2:
            message = f"{name} has shape {a.shape}; perf_mode double_row takes (partitions, 2, ...)"
            raise invalid(message, code="matmul-mode", got=a.shape)
    if i["is_transpose"]:
        message = "is_transpose can't be combined with perf_mode double_row"
        raise invalid(message, code="matmul-mode")


@nc_matmul.check
def _indirect(i: Instruction, arch: Arch) -> None:
    chosen = [name for name in ("stationary", "moving") if is_indirect(i[name])]
    for name in chosen:
        if i[name].dtype in WIDE:
            message = f"{name} is an .indirect() view of dtype {i[name].dtype}; allowed: " + listed(
                INPUTS - WIDE
            )
            raise invalid(message, code="dtype-operand", got=i[name].dtype)
    if "moving" in chosen and i["is_transpose"]:
        message = "moving is an .indirect() view; not allowed with is_transpose"
        raise invalid(message, code="matmul-mode")


@nc_matmul.check
def _dtypes(i: Instruction, arch: Arch) -> None:
    pair = (i["stationary"].dtype, i["moving"].dtype)
    shown = f"stationary is {pair[0]}, moving {pair[1]}"
    if d.float8_e4m3fn in pair:
        require_generation(arch, 4, "float8_e4m3fn in nc_matmul")
        if d.float8_e4m3 in pair:
            message = f"{shown}; the two e4m3 formats can't be mixed in one matmul"
            raise invalid(message, code="matmul-dtypes")
    if (pair[0] in WIDE) != (pair[1] in WIDE):
        raise invalid(
            f"{shown}; if one is float32 or tfloat32 the other must be float32 or tfloat32 too",
            code="matmul-dtypes",
        )
    if _moves(i, arch):
        _check_transpose(i, arch)
        return
    allowed = {d.float32, d.bfloat16} if arch.generation >= 4 else {d.float32}
    if i["dst"].dtype not in allowed:
        message = f"dst has dtype {i['dst'].dtype}; allowed on {arch.name}: " + listed(allowed)
        raise invalid(message, code="matmul-dtypes", got=i["dst"].dtype, allowed=allowed)


def _check_transpose(i: Instruction, arch: Arch) -> None:
    source, dst = i["stationary"].dtype, i["dst"].dtype
    allowed = {source, d.float32} if source.bits > 8 else {source, d.bfloat16, d.float16}
    if dst not in allowed:
        message = (
            f"dst has dtype {dst}, stationary {source}; a transpose moves data, dst can be "
            + listed(allowed)
        )
        raise invalid(message, code="matmul-dtypes", got=dst, allowed=allowed)
    if i["accumulate"] is True:
        raise invalid(
            "accumulate=True with is_transpose=True; a transpose moves data and can't add to it",
            code="matmul-mode",
        )


def _moves(i: Instruction, arch: Arch) -> bool:
    """Whether data is moved; NeuronCore-v2 multiplies by the identity instead."""
    return i["is_transpose"] and arch.generation >= 3


@nc_matmul.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    if _moves(i, kit.arch):
        return select_columns(i, kit)
    return m.multiply(i, kit, _rows(i), (i["stationary"], i["moving"]))


@nc_matmul.factors
def _factors(i: Instruction, arch: Arch) -> Factors | None:
    if _moves(i, arch):
        return None
    return Factors(i["dst"], i["stationary"], i["moving"], _rows(i))


def _rows(i: Instruction) -> int:
    rows: int = i["stationary"].shape[0]
    return rows * 2 if _double(i) else rows


@nc_matmul.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    double = _double(i)
    columns, n = _free(i["stationary"], double), _free(i["moving"], double)
    passes: float = 1
    if i["stationary"].dtype is d.float32:
        halved = i["is_stationary_onezero"] or i["is_moving_onezero"] or _moves(i, arch)
        passes = arch.matmul_fp32_passes / (2 if halved else 1)
    tile = array_tile(i, arch)
    rows = _rows(i)
    cycles = product_cycles(n, columns, arch, passes)
    return Cost(cycles=cycles, flops=2 * rows * columns * n, tile=tile)
