"""What kernels are written in: tensors, data types, operators, loops and program ids (`nl`)."""

# ruff: noqa: F401, F403 -- everything imported here is exported, see `__all__`

from types import ModuleType as _ModuleType
from typing import NoReturn as _NoReturn

from nki_dist.dtypes.dtype import *
from nki_dist.dtypes.dtype import bool_ as bool
from nki_dist.language.control import (
    affine_range,
    dynamic_range,
    fori_loop,
    no_reorder,
    num_programs,
    program_id,
    program_ndim,
    sequential_range,
    static_range,
    while_loop,
)
from nki_dist.language.creation import (
    full,
    is_hbm,
    is_on_chip,
    is_psum,
    is_sbuf,
    ndarray,
    ones,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from nki_dist.language.elementwise import *
from nki_dist.language.grid import nc, spmd_dim
from nki_dist.language.nki_object import NKIObject
from nki_dist.language.nn import (
    broadcast_to,
    expand_dims,
    matmul,
    rms_norm,
    softmax,
    transpose,
    where,
)
from nki_dist.language.older import missing as _missing
from nki_dist.language.random import dropout, rand, random_seed
from nki_dist.language.reductions import all, max, mean, min, prod, sum, var
from nki_dist.language.tensor import NkiTensor, ds
from nki_dist.language.tile_grid import NkiBlockGrid, NkiGrid, NkiTileGrid
from nki_dist.language.tile_size import TileSize as _TileSize
from nki_dist.language.tile_size import tile_size
from nki_dist.language.tiling import alloc_blocks, alloc_tiles, blocks, empty_like, tiles
from nki_dist.language.tokens import average, bypass, prelu
from nki_dist.language.transfer import device_print, gather_flattened, load, load_transpose2d, store
from nki_dist.program.memory import MemoryRegion, hbm, private_hbm, psum, sbuf, shared_hbm

# Spellings that published kernels use besides the documented ones.
range = static_range

# Without the submodules: `from nki.language import *` must not replace Python's `math`.
__all__ = [
    name
    for name, value in list(globals().items())
    if not name.startswith("_") and not isinstance(value, _ModuleType)
]


def __getattr__(name: str) -> _NoReturn:
    raise _missing(name)


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
