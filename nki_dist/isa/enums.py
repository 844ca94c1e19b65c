"""The enumerations of `nki.isa`.

`nc_version` is an IntEnum because kernels compare it both with members and with plain numbers.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class engine(Enum):
    """Engines of a NeuronCore; `unknown` lets the compiler choose."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    sync = 6
    unknown = 0


class reduce_cmd(Enum):
    """What an instruction does with its engine's accumulator registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who generates DMA descriptors; no effect on values."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What an indirect access does with an index outside its tensor."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """`double_row` contracts two FP8 rows per cell."""

    none = "none"
    double_row = "double_row"


class nc_version(IntEnum):
    """Generation of the NeuronCore: trn1 and inf2, trn2, trn3."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):
    """Transport of a `sendrecv`."""

    dma = 1
    gpsimd_dma = 2


class dependency(Enum):
    """Kind of a dependency between instructions (`NkiInstruction.depends_on`), from NKI 0.7 on."""

    runtime = "runtime"
    schedule = "schedule"


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown
