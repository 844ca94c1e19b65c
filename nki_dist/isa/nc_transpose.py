"""nisa.nc_transpose: a two-dimensional transpose on the Tensor or Vector engine."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import bfloat16, float16, float32
from nki_dist.errors import invalid
from nki_dist.isa.checks import check_result, same_dtype
from nki_dist.isa.effects import Bits, Effects, Mask, flattened, of_one
from nki_dist.isa.enums import engine
from nki_dist.isa.matmul import check_bank, matrix
from nki_dist.isa.operands import read, write
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, may_reject, op
from nki_dist.isa.timing_rules import issue_cycles, product_cycles
from nki_dist.isa.transpose import identity_matrix, transpose


def default_engine(i: Instruction, arch: Arch) -> str:
    """Tensor where the tile is in SBUF and dst in PSUM, Vector for what only it can do."""
    regions = (i["data"].region.value, i["dst"].region.value)
    return "tensor" if regions == ("sbuf", "psum") else "vector"


@of_one
def _transposed(i: Instruction, m: np.ndarray) -> Mask:
    """Elements change places with their mirror image."""
    return flattened(m).T


def _same_type(i: Instruction) -> bool:
    return i["dst"].dtype is i["data"].dtype


_BITS = Bits(("dst", "data"), when=_same_type)


@instruction(
    engines="tensor vector",
    effects=Effects(_transposed("data"), partial=False, bits=_BITS, state=None),
    accumulates=False,
    chains=True,
    default_engine=default_engine,
)
def nc_transpose(dst=write(), data=read(), engine=engine.unknown, name=None):
    """`dst[f, p] = data[p, f]`, with the free dimensions of both flattened.

    Args:
        dst: tile (F, P), same dtype as data, but see below. In PSUM for the Tensor engine.
        data: tile (P, F), at most (128, 128) for the Tensor engine, which reads SBUF, and (32, 32)
            for the Vector engine.
        engine: tensor or vector; by default tensor from SBUF to PSUM, vector otherwise.

    Data moves bit by bit, except on NeuronCore-v2's Tensor engine, which multiplies floats by an
    identity: NaN and infinity spread along the contraction there, and -0.0 becomes 0.0. Products of
    bfloat16 and float16 may leave as float32, as published kernels for trn1 have it; AWS documents
    data's dtype for all platforms, so it is a CompilerMayRejectWarning.

    Raises:
        NkiValidationError: shapes, dtypes, memories or engine don't fit.
    """
    return locals()


@nc_transpose.check
def _shapes(i: Instruction, arch: Arch) -> None:
    dst, data = i["dst"], i["data"]
    why = f"the transpose of data (shape {data.shape}) has"
    check_result(dst, data.free_size, data.shape[0], why)
    tensor = i.engine == "tensor"
    limit = arch.transpose_tensor_max if tensor else arch.transpose_vector_max
    rows, columns = data.shape[0], data.free_size
    if max(rows, columns) > limit:
        message = (
            f"data has {rows} partitions and {columns} elements in each (shape {data.shape}); the "
            f"{i.engine} engine transposes at most ({limit}, {limit})"
        )
        raise invalid(message, code="transpose-size", got=[rows, columns], most=[limit, limit])


@nc_transpose.check
def _types(i: Instruction, arch: Arch) -> None:
    dst, data = i["dst"], i["data"]
    if _same_type(i):
        return
    multiplies = arch.generation < 3 and i.engine == "tensor"
    if multiplies and dst.dtype is float32 and data.dtype in (bfloat16, float16):
        may_reject(
            f"dst has dtype float32, data {data.dtype}; the documentation asks for one dtype, "
            "while published kernels for trn1 take a transpose's product in float32",
            code="transpose-dtype",
            hint=f"give dst the dtype {data.dtype}: it holds the same values",
        )
        return
    same_dtype("dst data", "a transpose doesn't convert, they must be the same")(i, arch)


@nc_transpose.check
def _memories(i: Instruction, arch: Arch) -> None:
    if i.engine != "tensor":
        return
    for name, region in (("data", "sbuf"), ("dst", "psum")):
        if i[name].region.value != region:
            message = (
                f"{name} is in {i[name].region.value}; the Tensor engine transposes from SBUF to "
                "PSUM (the Vector engine from and to either, up to "
                f"({arch.transpose_vector_max}, {arch.transpose_vector_max}))"
            )
            raise invalid(message, code="transpose-memory")
    if arch.generation < 4:
        check_bank(i["dst"], arch)


@nc_transpose.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, data = i["dst"], i["data"]
    if kit.arch.generation >= 3 or i.engine != "tensor" or not data.dtype.is_float:
        return transpose(dst, data, kit)
    left, filled = matrix(data, kit, data.shape[0])
    product = kit.scratch((data.free_size, data.shape[0]))
    return [
        *filled,
        op(np.matmul, left.T, identity_matrix(data.shape[0]), product),
        op(kit.convert(float32, dst.dtype), kit.view(dst), product.reshape(dst.shape)),
    ]


@nc_transpose.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    data = i["data"]
    if i.engine == "tensor":
        return Cost(cycles=product_cycles(data.shape[0], data.free_size, arch))
    return Cost(cycles=issue_cycles(data.free_size, arch))
