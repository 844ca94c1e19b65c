"""How each instruction passes on elements that nobody wrote: one table, a handful of rules.

A rule gets masks of the operands (True where the value depends on unwritten memory) and gives masks
of the results. Where what happens depends on data, or nobody has looked closely, the rule is
"optimistic": the results count as clean, so that correct kernels are never refused. The values
themselves are still poison when the program runs; only the report is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from nki_dist.compiler.passes.footprints import accesses
from nki_dist.program import Access, Instruction

Mask: TypeAlias = "np.ndarray | None"
MaskOf: TypeAlias = "Callable[[Access], Mask]"
Results: TypeAlias = "dict[str, Mask]"


class Rule(NamedTuple):
    """kind: key of APPLY; sources: the parameters whose elements count."""

    kind: str
    sources: tuple[str, ...] = ()


def _rule(kind: str, sources: str = "") -> Rule:
    return Rule(kind, tuple(sources.split()))


CLEAN: Final = _rule("clean")  # results are known constants, random numbers, registers
OPTIMISTIC: Final = _rule("optimistic")

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "dma_copy": _rule("move", "src"),
        "tensor_copy": _rule("move", "src"),
        "nc_transpose": _rule("transpose", "data"),
        "dma_transpose": _rule("transpose", "src"),
        "nc_stream_shuffle": _rule("shuffle", "src"),
        "nc_matmul": _rule("matmul", "stationary moving"),
        "nc_matmul_mx": _rule("matmul", "stationary moving"),
        "tensor_tensor": _rule("elementwise", "data1 data2"),
        "tensor_scalar": _rule("elementwise", "data operand0 operand1"),
        "scalar_tensor_tensor": _rule("elementwise", "data operand0 operand1"),
        "tensor_scalar_reduce": _rule("elementwise", "data operand0"),
        "activation": _rule("elementwise", "data bias scale"),
        "activation_reduce": _rule("elementwise", "data bias scale"),
        "activate2": _rule("elementwise", "data imm0 imm1 relu_param"),
        "exponential": _rule("elementwise", "src max_value"),
        "reciprocal": _rule("elementwise", "data"),
        "language_math": _rule("elementwise", "data"),
        "dropout": _rule("elementwise", "data prob"),
        "rand2": _rule("elementwise", "min max"),
        "dma_compute": _rule("elementwise", "srcs"),
        "tensor_reduce": _rule("reduce", "data"),
        "tensor_partition_reduce": _rule("partition_reduce", "data"),
        "bn_stats": _rule("row", "data"),
        "bn_aggr": _rule("row", "data"),
        "max8": _rule("row", "src"),
        "nc_find_index8": _rule("row", "data vals"),
        "tensor_tensor_scan": _rule("scan", "data0 data1 initial"),
        "tensor_scalar_cumulative": _rule("scan", "src imm0"),
        "memset": CLEAN,
        "iota": CLEAN,
        "rng": CLEAN,
        "rand_get_state": CLEAN,
        "register_store": CLEAN,
        "register_move": CLEAN,
        "register_load": CLEAN,  # reading an unwritten element is reported there, see Taint
        "set_rng_seed": CLEAN,
        "rand_set_state": CLEAN,
        "core_barrier": CLEAN,
        "device_print": CLEAN,
        # Results that select by data or attributes among their operands:
        "tensor_copy_predicated": OPTIMISTIC,
        "affine_select": OPTIMISTIC,
        "range_select": OPTIMISTIC,
        "select_reduce": OPTIMISTIC,
        "nc_match_replace8": OPTIMISTIC,
        "local_gather": OPTIMISTIC,
        "nc_n_gather": OPTIMISTIC,
        "sequence_bounds": OPTIMISTIC,
        "nonzero_with_count": OPTIMISTIC,
        "topk": OPTIMISTIC,
        "quantize_mx": _rule("quantize", "src"),
        # The data comes from other cores:
        "sendrecv": OPTIMISTIC,
        "all_gather": OPTIMISTIC,
        "all_gather_v": OPTIMISTIC,
        "all_reduce": OPTIMISTIC,
        "all_to_all": OPTIMISTIC,
        "all_to_all_v": OPTIMISTIC,
        "collective_permute": OPTIMISTIC,
        "collective_permute_implicit": OPTIMISTIC,
        "collective_permute_implicit_reduce": OPTIMISTIC,
        "reduce_scatter": OPTIMISTIC,
        "read_rank_id": CLEAN,
        "read_ring_rank_id": CLEAN,
    }
)


def apply(i: Instruction, mask_of: MaskOf) -> Results:
    """Masks of an instruction's results by parameter; a parameter left out is clean."""
    rule = RULES.get(i.opcode, OPTIMISTIC)
    return APPLY[rule.kind](i, rule.sources, mask_of)


def _nothing(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    return {}


def _rows(m: np.ndarray) -> np.ndarray:
    """(partitions, elements per partition)."""
    return m.reshape(m.shape[0], -1)


def _union(m: np.ndarray, axis: int) -> np.ndarray:
    return np.logical_or.reduce(m, axis=axis)


def _joined(
    i: Instruction, sources: tuple[str, ...], mask_of: MaskOf, shape: tuple[int, int]
) -> Mask:
    """Union of the sources over (partitions, elements); one element per partition broadcasts."""
    total: Mask = None
    for name in sources:
        for a in accesses(i.args.get(name)):
            m = mask_of(a)
            if m is None:
                continue
            m = _rows(m)
            if m.size == shape[0] * shape[1]:
                m = m.reshape(shape)
            elif m.shape[0] not in (1, shape[0]) or m.shape[1] not in (1, shape[1]):
                continue  # a form this rule doesn't know
            total = np.broadcast_to(m, shape) if total is None else np.logical_or(total, m)
    return total


def _shape(i: Instruction, name: str = "dst") -> tuple[int, int]:
    a = i.args[name]
    return a.shape[0], a.free_size


def _elementwise(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    m = _joined(i, sources, mask_of, _shape(i))
    found: Results = {"dst": m}
    if m is not None and isinstance(i.args.get("reduce_res"), Access):
        found["reduce_res"] = _union(m, 1)[:, None]
    return found


def _move(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    return {"dst": mask_of(i.args[sources[0]])}


def _transpose(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    m = mask_of(i.args[sources[0]])
    if m is None:
        return {}
    if i.opcode == "nc_transpose":
        return {"dst": _rows(m).T}
    axes = i.args.get("axes")
    if axes is None:
        axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}.get(m.ndim)
    if axes is None or sorted(axes) != list(range(m.ndim)):
        return {}
    return {"dst": m.transpose(tuple(axes))}


def _shuffle(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    m = mask_of(i.args[sources[0]])
    before = mask_of(i.args["dst"])
    rows, free = _shape(i)
    out = np.zeros((rows, free), bool) if before is None else _rows(before).copy()
    if m is None:
        m = np.zeros(i.args[sources[0]].shape, bool)
    m = _rows(m)
    for row in range(rows):
        lane = i.args["shuffle_mask"][row % 32]
        source = row // 32 * 32 + lane
        if lane != 255 and source < m.shape[0] and m.shape[1] == free:
            out[row] = m[source]
    return {"dst": out}


def _matmul(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """dst[m, n] depends on stationary[:, m] and moving[:, n]; a transpose moves single elements."""
    stationary, moving = i.args[sources[0]], i.args[sources[1]]
    s, m = mask_of(stationary), mask_of(moving)
    rows, free = _shape(i)
    before = mask_of(i.args["dst"]) if i.accumulation == "add" else None
    if i.args.get("is_transpose") and s is not None and _rows(s).shape == (free, rows):
        return {"dst": _rows(s).T}
    total = np.zeros((rows, free), bool) if before is None else _rows(before).copy()
    column = None if s is None else _columns(s, rows)
    line = None if m is None else _columns(m, free)
    if column is not None:
        total |= column[:, None]
    if line is not None:
        total |= line[None, :]
    return {"dst": total}


def _columns(m: np.ndarray, count: int) -> Mask:
    """Which of `count` columns have a mark in any contracted row (all but the last dimensions)."""
    flat = _union(_rows(m), 0)
    if flat.size == count:
        return flat
    if flat.size % count == 0:  # double rows: (partitions, 2, columns)
        return _union(flat.reshape(-1, count), 0)
    return None


def _quantize(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """The scale of 8 partitions and 4 elements depends on all of them, and the values on it."""
    m = mask_of(i.args[sources[0]])
    if m is None:
        return {}
    rows, free = _shape(i)
    return {"dst": m.reshape(rows // 8, 8, free, 4).any(axis=(1, 3)).repeat(8, axis=0)}


def _reduce(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Trailing dimensions are reduced, so each result is the union of one run of elements."""
    m = mask_of(i.args[sources[0]])
    rows, free = _shape(i)
    if m is None or m.shape[0] != rows or m.size % (rows * free):
        return {}
    return {"dst": _union(m.reshape(rows, free, -1), 2)}


def _partition_reduce(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    m = mask_of(i.args[sources[0]])
    return {} if m is None else {"dst": _union(_rows(m), 0)}


def _row(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Every result of a partition depends on all its elements."""
    rows, free = _shape(i)
    total = np.zeros((rows, 1), bool)
    for name in sources:
        m = mask_of(i.args[name])
        if m is not None and m.shape[0] == rows:
            total |= _union(_rows(m), 1)[:, None]
    return {"dst": np.broadcast_to(total, (rows, free))}


def _scan(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    m = _joined(i, sources, mask_of, _shape(i))
    return {} if m is None else {"dst": np.logical_or.accumulate(m, axis=1)}


APPLY: Final[Mapping[str, Callable[[Instruction, tuple[str, ...], Any], Results]]] = (
    MappingProxyType(
        {
            "clean": _nothing,
            "optimistic": _nothing,
            "elementwise": _elementwise,
            "move": _move,
            "transpose": _transpose,
            "shuffle": _shuffle,
            "quantize": _quantize,
            "matmul": _matmul,
            "reduce": _reduce,
            "partition_reduce": _partition_reduce,
            "row": _row,
            "scan": _scan,
        }
    )
)
