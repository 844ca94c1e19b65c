"""The instructions of a NeuronCore, a file each or with others of their kind: `nki_dist.isa`.

An instruction is declared once: operands, checks, what it does, what it costs.

`INSTRUCTIONS` maps opcode to the instruction's declaration; codec, executor and timing look there.
"""

# ruff: noqa: F401 -- what is imported here is exported, see `__all__`

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import NoReturn as _NoReturn

from nki_dist.errors import NkiValidationError
from nki_dist.isa.activation import activate2, activation, activation_reduce, exponential
from nki_dist.isa.affine import affine_select, iota
from nki_dist.isa.batch_norm import bn_aggr, bn_stats
from nki_dist.isa.collectives import COLLECTIVES
from nki_dist.isa.described import absent as _absent
from nki_dist.isa.device_print import device_print
from nki_dist.isa.dma_compute import dma_compute
from nki_dist.isa.dma_copy import dma_copy
from nki_dist.isa.dma_transpose import dma_transpose
from nki_dist.isa.eight import max8, nc_find_index8, nc_match_replace8
from nki_dist.isa.enums import (
    dependency,
    dge_mode,
    dma_engine,
    engine,
    gpsimd_engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from nki_dist.isa.gathers import local_gather, nc_n_gather
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.lnc import core_barrier, sendrecv
from nki_dist.isa.memset import memset
from nki_dist.isa.mx import nc_matmul_mx, quantize_mx
from nki_dist.isa.nc_matmul import nc_matmul
from nki_dist.isa.nc_stream_shuffle import nc_stream_shuffle
from nki_dist.isa.nc_transpose import nc_transpose
from nki_dist.isa.platform import get_nc_sub_version, get_nc_version
from nki_dist.isa.positions import nonzero_with_count, sequence_bounds, topk
from nki_dist.isa.random_numbers import dropout, rand2, rng
from nki_dist.isa.random_state import rand_get_state, rand_set_state, set_rng_seed
from nki_dist.isa.registers import register_alloc, register_load, register_move, register_store
from nki_dist.isa.scalar import NkiScalar, scalar_load, scalar_store
from nki_dist.isa.scalar import load as _scalar_load
from nki_dist.isa.scalar import scalar_arithmetic as _scalar_arithmetic
from nki_dist.isa.scalar import store as _scalar_store
from nki_dist.isa.scalar_reductions import tensor_scalar_cumulative, tensor_scalar_reduce
from nki_dist.isa.selects import range_select, select_reduce
from nki_dist.isa.spec import Spec
from nki_dist.isa.tensor_copy import tensor_copy, tensor_copy_predicated
from nki_dist.isa.tensor_reductions import tensor_partition_reduce, tensor_reduce
from nki_dist.isa.tensor_scalar import tensor_scalar
from nki_dist.isa.tensor_tensor import scalar_tensor_tensor, tensor_tensor
from nki_dist.isa.tensor_tensor_scan import tensor_tensor_scan
from nki_dist.isa.unary import language_math, reciprocal
from nki_dist.program import VirtualRegister

INSTRUCTIONS: Mapping[str, Spec] = MappingProxyType(
    {
        **{value.name: value for value in list(globals().values()) if isinstance(value, Spec)},
        **COLLECTIVES,
    }
)

_HELPERS = ("COLLECTIVES", "Mapping", "MappingProxyType", "ModuleType", "Spec", "annotations")

# Without the submodules, and without what it is made with.
__all__ = [
    name
    for name, value in list(globals().items())
    if not (name.startswith("_") or name in _HELPERS or isinstance(value, ModuleType))
]


def __getattr__(name: str) -> _NoReturn:
    ways = "Arithmetic is op= of tensor_tensor, tensor_scalar, activation; dir(nisa) lists all."
    raise _absent("nki_dist.isa", name, ways)


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
