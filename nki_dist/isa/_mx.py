"""Where the scales of packed (MX) tiles are, shared by quantize_mx and nc_matmul_mx.

A scaling group is 8 partitions by the 4 values of one packed element. The scales of a quadrant of
32 partitions occupy 4 neighbouring partitions of the same quadrant of the scale tile, at an offset
of 0, 4, 8 or 12; the rest of it isn't touched. Follows `nisa.quantize_mx` and the MX deep dive.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.nc_stream_shuffle import start_partition
from nki_dist.program import Access

GROUP: Final = 8  # partitions of a scaling group
_QUADRANT: Final = 32
_OFFSETS: Final = (0, 4, 8, 12)


def scale_rows(partitions: int) -> np.ndarray:
    """Partition of the scale tile for each group of 8 partitions of the data."""
    group = np.arange(partitions // GROUP)
    per_quadrant = _QUADRANT // GROUP
    return group // per_quadrant * _QUADRANT + group % per_quadrant


def check_partitions(name: str, a: Access, arch: Arch) -> None:
    if a.shape[0] % _QUADRANT or a.shape[0] > arch.partitions:
        raise NkiValidationError(
            f"{name} has {a.shape[0]} partitions; must be a multiple of {_QUADRANT}, at most "
            f"{arch.partitions}",
            code="partition-multiple",
            numbers={"got": a.shape[0], "multiple": _QUADRANT, "most": arch.partitions},
        )


def check_scale(name: str, scale: Access, partitions: int, elements: int) -> None:
    """The scale tile has a place for every group, in the right quadrants."""
    need = int(scale_rows(partitions)[-1]) + 1
    if scale.shape[0] < need:
        raise NkiValidationError(
            f"{name} has {scale.shape[0]} partitions; the scales of {partitions} partitions of "
            f"data are spread over {need} (4 in each quadrant of 32)",
            code="mx-scale-layout",
            numbers={"got": scale.shape[0], "allowed": need},
        )
    if scale.free_size != elements:
        raise NkiValidationError(
            f"{name} has {scale.free_size} elements per partition (shape {scale.shape}); the data "
            f"has {elements} packed elements per partition, must be equal",
            code="mx-scale-layout",
            numbers={"got": scale.free_size, "allowed": elements},
        )
    offset = start_partition(scale) % _QUADRANT
    if offset not in _OFFSETS:
        raise NkiValidationError(
            f"{name} starts at partition {start_partition(scale)}, {offset} into its quadrant; "
            "allowed: 0, 4, 8 or 12",
            code="mx-scale-layout",
            numbers={"got": offset, "allowed": [0, 4, 8, 12]},
        )
