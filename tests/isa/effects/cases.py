"""At least one small case for every instruction that doesn't wait for other cores.

Shapes are odd where the instruction lets them be. An instruction whose effects depend on its
attributes or on the forms of its operands has a case for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.isa.collectives.rank_registers import read_rank_id, read_ring_rank_id
from nki_dist.isa.device_print import device_print
from nki_dist.isa.registers import register_move
from nki_dist.isa.scalar import NkiScalar, scalar_arithmetic
from nki_dist.isa.unary import language_math
from tests.isa.effects.running import Case

F32, BF16, U8 = nl.float32, nl.bfloat16, nl.uint8
cmd = nisa.reduce_cmd


def t(*shape: int, dtype: Any = F32, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def psum(*shape: int, dtype: Any = F32) -> Any:
    return t(*shape, dtype=dtype, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = F32) -> Any:
    return t(*shape, dtype=dtype, buffer=nl.private_hbm)


def case(
    body: Callable[[], Any], also: Any = None, tries: Any = (), adds: bool = False, **values: Any
) -> Case:
    return Case(body, "trn2", values, adds, also or {}, tries)


def on4(body: Callable[[], Any], adds: bool = False, **values: Any) -> Case:
    """A case for what NeuronCore-v4 has first."""
    return Case(body, "trn3", values, adds)


def register() -> Any:
    return nisa.register_alloc(3)


EVEN = np.arange(64) % 2
ORDER = np.array([5, 2, 7, 0, 3, 1, 6, 4])

MOVES = {
    "dma_copy": [
        case(lambda: nisa.dma_copy(dst=t(3, 10), src=hbm(5, 6))),
        case(lambda: nisa.dma_copy(dst=t(3, 4, dtype=BF16), src=hbm(3, 4, dtype=BF16))),
        case(lambda: nisa.dma_copy(dst=t(3, 5), src=t(3, 10)[:, 1::2])),
    ],
    "tensor_copy": [
        case(lambda: nisa.tensor_copy(dst=t(3, 10), src=psum(3, 2, 5))),
        case(lambda: nisa.tensor_copy(dst=t(3, 5, dtype=BF16), src=t(3, 5, dtype=BF16))),
    ],
    "nc_transpose": [
        case(lambda: nisa.nc_transpose(dst=psum(6, 5), data=t(5, 2, 3))),
        case(lambda: nisa.nc_transpose(dst=t(6, 5), data=t(5, 6), engine=nisa.engine.vector)),
    ],
    "dma_transpose": [
        case(lambda: nisa.dma_transpose(dst=t(6, 5), src=t(5, 6))),
        case(lambda: nisa.dma_transpose(dst=t(3, 2, 5), src=hbm(5, 2, 3))),
        case(lambda: nisa.dma_transpose(dst=t(3, 2, 4, 5), src=hbm(5, 2, 4, 3))),
    ],
    "nc_stream_shuffle": [
        case(
            lambda: nisa.nc_stream_shuffle(
                dst=t(6, 4), src=t(5, 4), shuffle_mask=[1, 255, 4, 0, 1, 255, *[0] * 26]
            )
        ),
        case(lambda: nisa.nc_stream_shuffle(dst=t(3, 4), src=t(3, 4), shuffle_mask=[1, 0] * 16)),
    ],
    "local_gather": [
        case(
            lambda: nisa.local_gather(
                dst=t(16, 32), src_buffer=t(16, 3), index=t(16, 2, dtype=nl.uint16)
            ),
            index=np.arange(32) % 3,
        ),
        case(
            lambda: nisa.local_gather(
                dst=t(16, 10), src_buffer=t(16, 6), index=t(16, 1, dtype=nl.uint16),
                num_elem_per_idx=2, num_valid_indices=5,
            ),
            index=np.arange(16) % 4,
        ),
    ],
    "nc_n_gather": [
        case(
            lambda: nisa.nc_n_gather(dst=t(3, 5), data=t(3, 4), indices=t(3, 5, dtype=nl.uint32)),
            indices=np.arange(15) % 4,
        )
    ],
    "tensor_copy_predicated": [
        case(
            lambda: nisa.tensor_copy_predicated(
                dst=t(3, 5), src=t(3, 5), predicate=t(3, 5, dtype=U8)
            ),
            predicate=EVEN,
        )
    ],
    "affine_select": [
        case(
            lambda: nisa.affine_select(
                dst=t(3, 5), pattern=[[1, 5]], channel_multiplier=-1, on_true_tile=t(3, 5),
                on_false_value=0, cmp_op=nl.less,
            )
        )
    ],
    "memset": [
        case(lambda: nisa.memset(dst=t(3, 5), value=1.5)),
        case(lambda: nisa.memset(dst=t(3, 5, dtype=BF16), value=1.5)),
    ],
    "iota": [case(lambda: nisa.iota(dst=t(3, 5), pattern=[[2, 5]], channel_multiplier=3))],
    "register_move": [case(lambda: register_move(register(), register()))],
    "register_load": [case(lambda: nisa.register_load(register(), t(1, 1, dtype=nl.int32)))],
    "register_store": [case(lambda: nisa.register_store(t(1, 1, dtype=nl.int32), register()))],
    "scalar_load": [case(lambda: nisa.scalar_load(t(1, 1, dtype=nl.int32)))],
    "scalar_store": [
        case(lambda: nisa.scalar_store(t(1, 1, dtype=nl.int32), NkiScalar(register())))
    ],
    "scalar_arithmetic": [
        case(lambda: scalar_arithmetic(register(), "subtract", register(), 5, 32)),
        case(lambda: scalar_arithmetic(register(), "multiply", register(), register(), 64)),
    ],
    "read_rank_id": [case(lambda: read_rank_id(register()))],
    "read_ring_rank_id": [case(lambda: read_ring_rank_id(register(), register(), [[0, 1]], 0))],
    "device_print": [case(lambda: device_print("x", t(3, 5)))],
}  # fmt: skip

ELEMENTWISE = {
    "tensor_tensor": [
        case(lambda: nisa.tensor_tensor(dst=t(3, 5), data1=t(3, 5), data2=t(3, 5), op=nl.add))
    ],
    "tensor_scalar": [
        case(
            lambda: nisa.tensor_scalar(
                dst=t(3, 5), data=t(3, 5), op0=nl.add, operand0=t(3, 1), op1=nl.multiply,
                operand1=t(3, 1),
            )
        )
    ],
    "scalar_tensor_tensor": [
        case(
            lambda: nisa.scalar_tensor_tensor(
                dst=t(3, 5), data=t(3, 5), op0=nl.add, operand0=t(3, 1), op1=nl.multiply,
                operand1=t(3, 5),
            )
        )
    ],
    "tensor_scalar_reduce": [
        case(lambda command=command, extra=extra: nisa.tensor_scalar_reduce(
            dst=t(3, 5), data=t(3, 5), op0=nl.add, operand0=t(3, 1), reduce_op=nl.add,
            reduce_res=t(3, 1), **extra(command)))
        for command, extra in (
            (cmd.reset_reduce, lambda c: {"reduce_cmd": c}),
            (cmd.reduce, lambda c: {"reduce_cmd": c}),
            (cmd.load_reduce, lambda c: {"reduce_cmd": c, "reduce_init": t(3, 1)}),
        )
    ],
    "activation": [
        case(lambda: nisa.activation(
            dst=t(3, 5), op=nl.exp, data=t(3, 5), bias=t(3, 1), scale=t(3, 1))),
        case(lambda: nisa.activation(dst=t(3, 5), op=nl.copy, data=t(3, 5))),
        *(
            case(lambda c=c: nisa.activation(
                dst=t(3, 5), op=nl.square, data=t(3, 5), reduce_op=nl.add, reduce_res=t(3, 1),
                reduce_cmd=c))
            for c in (cmd.reset_reduce, cmd.reduce, cmd.reset, cmd.idle)
        ),
    ],
    "activation_reduce": [
        case(lambda: nisa.activation_reduce(
            dst=t(3, 5), op=nl.square, data=t(3, 5), reduce_op=nl.add, reduce_res=t(3, 1),
            bias=t(3, 1), scale=t(3, 1))),
        case(lambda: nisa.activation_reduce(
            dst=t(3, 5), op=nl.square, data=t(3, 5), reduce_op=nl.add, reduce_res=None)),
    ],
    "activate2": [
        on4(lambda: nisa.activate2(
            dst=t(3, 5), op=nl.square, data=t(3, 5), imm0=t(3, 1), imm1=t(3, 1), op0=nl.multiply,
            op1=nl.add)),
        on4(lambda: nisa.activate2(
            dst=t(3, 5), op=nl.prelu, data=t(3, 5), imm0=2.0, imm1=1.0, op0=nl.multiply,
            op1=nl.subtract, relu_param=t(3, 1)), data=[-1.5, -2.5, -0.25]),
        *(
            on4(lambda c=c: nisa.activate2(
                dst=t(3, 5), op=nl.square, data=t(3, 5), imm0=2.0, imm1=1.0, op0=nl.multiply,
                op1=nl.add, reduce_op=nl.add, reduce_res=t(3, 1), reduce_cmd=c))
            for c in (cmd.reset_reduce, cmd.reduce, cmd.idle)
        ),
    ],
    "exponential": [
        on4(lambda: nisa.exponential(dst=t(3, 5), src=t(3, 5), max_value=t(3, 1))),
        on4(lambda: nisa.exponential(
            dst=t(3, 5), src=t(3, 5), max_value=t(3, 1), reduce_res=t(3, 1),
            reduce_cmd=cmd.load_reduce, reduce_init=t(3, 1))),
    ],
    "reciprocal": [case(lambda: nisa.reciprocal(dst=t(3, 5), data=t(3, 5)))],
    "language_math": [case(lambda: language_math(t(3, 5), "sin", t(3, 5)))],
    "dropout": [
        case(
            lambda: nisa.dropout(dst=t(3, 5), data=t(3, 5), prob=t(3, 1)),
            prob=[0.0],
        )
    ],
    "rand2": [on4(lambda: nisa.rand2(dst=t(3, 5), min=t(3, 1), max=t(3, 1)), max=[9.0])],
    "dma_compute": [
        case(lambda: nisa.dma_compute(dst=t(3, 5), srcs=[t(3, 5), hbm(5, 3)], reduce_op=nl.add)),
    ],
    "rng": [case(lambda: nisa.rng(dst=t(3, 5, dtype=nl.uint32)))],
    "rand_get_state": [
        case(lambda: nisa.rand_get_state(t(3, 6, dtype=nl.uint32), engine=nisa.engine.gpsimd)),
        on4(lambda: nisa.rand_get_state(t(3, 24, dtype=nl.uint32), engine=nisa.engine.vector)),
    ],
    "rand_set_state": [
        case(lambda: nisa.rand_set_state(t(3, 6, dtype=nl.uint32), engine=nisa.engine.gpsimd)),
        on4(lambda: nisa.rand_set_state(t(3, 24, dtype=nl.uint32), engine=nisa.engine.vector)),
    ],
    "set_rng_seed": [case(lambda: nisa.set_rng_seed(t(1, 1, dtype=nl.uint32)))],
}  # fmt: skip

ROWS = {
    "tensor_reduce": [
        case(lambda: nisa.tensor_reduce(dst=t(3, 2), op=nl.add, data=t(3, 2, 4), axis=2)),
        case(lambda: nisa.tensor_reduce(dst=t(3, 1), op=nl.maximum, data=t(3, 2, 4), axis=(1, 2))),
    ],
    "tensor_partition_reduce": [
        case(lambda: nisa.tensor_partition_reduce(dst=t(1, 5), op=nl.add, data=t(3, 5)))
    ],
    "bn_stats": [case(lambda: nisa.bn_stats(dst=t(3, 6), data=t(3, 7)))],
    "bn_aggr": [case(lambda: nisa.bn_aggr(dst=t(3, 2), data=t(3, 6)))],
    "max8": [case(lambda: nisa.max8(dst=t(3, 8), src=t(3, 9)))],
    "nc_find_index8": [
        case(
            lambda: nisa.nc_find_index8(dst=t(2, 8, dtype=nl.uint32), data=t(2, 9), vals=t(2, 8)),
            {"data": range(20, 38), "vals": ORDER},
            range(8),
            data=[*ORDER, 9],
            vals=ORDER,
        )
    ],
    "nc_match_replace8": [
        case(
            lambda: nisa.nc_match_replace8(
                dst=t(2, 9), data=t(2, 9), vals=t(2, 8), imm=-1.0, dst_idx=t(2, 8, dtype=nl.uint32)
            )
        )
    ],
    "tensor_tensor_scan": [
        case(
            lambda: nisa.tensor_tensor_scan(
                dst=t(3, 5), data0=t(3, 5), data1=t(3, 5), initial=t(3, 1), op0=nl.multiply,
                op1=nl.add,
            )
        )
    ],
    "tensor_scalar_cumulative": [
        case(
            lambda c=c: nisa.tensor_scalar_cumulative(
                dst=t(3, 5), src=t(3, 5), op0=nl.multiply, op1=nl.add, imm0=t(3, 1),
                imm1=t(3, 1) if c is cmd.load_reduce else None, reduce_cmd=c,
            )
        )
        for c in (cmd.reset_reduce, cmd.reduce, cmd.load_reduce)
    ],
    "range_select": [
        case(
            lambda c=c: nisa.range_select(
                dst=t(3, 5), on_true_tile=t(3, 5), comp_op0=nl.greater_equal, comp_op1=nl.less,
                bound0=t(3, 1), bound1=t(3, 1), reduce_cmd=c, reduce_res=t(3, 1),
            ),
            bound0=[1.0],
            bound1=[4.0],
        )
        for c in (cmd.reset_reduce, cmd.reduce)
    ],
    "select_reduce": [
        case(
            lambda c=c: nisa.select_reduce(
                dst=t(3, 5), predicate=t(3, 5, dtype=U8), on_true=t(3, 5), on_false=t(3, 1),
                reduce_res=t(3, 1), reduce_cmd=c,
            ),
            predicate=EVEN,
        )
        for c in (cmd.idle, cmd.reset_reduce, cmd.reduce)
    ],
    "sequence_bounds": [
        case(
            lambda: nisa.sequence_bounds(dst=t(1, 2, 7), segment_ids=t(1, 7)),
            segment_ids=[1, 1, 2, 2, 2, 3, 0],
        )
    ],
    "nonzero_with_count": [
        case(
            lambda: nisa.nonzero_with_count(dst=t(32, 6, dtype=nl.int32), src=t(32, 5)),
            src=EVEN,
        )
    ],
    "topk": [
        case(
            lambda: nisa.topk(
                val_dst=t(16, 20, dtype=BF16), idx_dst=t(16, 20, dtype=nl.uint32),
                src=t(16, 2, dtype=BF16), n=32,
            )
        )
    ],
    "quantize_mx": [
        on4(
            lambda: nisa.quantize_mx(
                dst=t(32, 2, dtype=nl.float8_e5m2_x4), src=t(32, 8, dtype=BF16),
                dst_scale=t(32, 2, dtype=U8),
            )
        )
    ],
}  # fmt: skip


def transposing(dtype: Any, into: Any, n: int = 5) -> Case:
    """The Tensor engine's move of bits."""
    return case(
        lambda: nisa.nc_matmul(
            dst=psum(6, n, dtype=into), stationary=t(n, 6, dtype=dtype),
            moving=t(n, n, dtype=dtype), is_transpose=True,
        ),
        moving=np.eye(n),
    )  # fmt: skip


def scaled(adds: bool) -> Case:
    packed = nl.float8_e5m2_x4
    return on4(
        lambda: nisa.nc_matmul_mx(
            dst=psum(2, 3), stationary=t(32, 2, dtype=packed), moving=t(32, 3, dtype=packed),
            stationary_scale=t(32, 2, dtype=U8), moving_scale=t(32, 3, dtype=U8),
        ),
        adds,
        stationary_scale=[127, 128],
        moving_scale=[127, 126],
    )  # fmt: skip


MATMULS = {
    "nc_matmul": [
        *(
            case(
                lambda: nisa.nc_matmul(dst=psum(4, 3), stationary=t(5, 4), moving=t(5, 3)),
                adds=adds,
            )
            for adds in (False, True)
        ),
        transposing(BF16, BF16),
        transposing(nl.float8_e5m2, BF16),
        case(
            lambda: nisa.nc_matmul(
                dst=psum(4, 3), stationary=t(5, 2, 4, dtype=nl.float8_e5m2),
                moving=t(5, 2, 3, dtype=nl.float8_e5m2), perf_mode="double_row",
            )
        ),
    ],
    "nc_matmul_mx": [scaled(False), scaled(True)],
}  # fmt: skip

CASES: dict[str, list[Case]] = {**MOVES, **ELEMENTWISE, **ROWS, **MATMULS}
