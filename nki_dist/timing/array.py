"""The Tensor engine's array of 128 x 128 cells, of which products may take only a tile.

Products in tiles that don't overlap run side by side; one waits for those before it in its own
tile. The engine begins the next as soon as its share of the array has been fed: four products in
four quarters take together what one in the whole array takes. Follows: ISA nc_matmul, "Tiling
mode", which says that they run in parallel and not how often one can begin: that is assumed.
"""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.isa.tensor_engine import ArrayTile


class Array:
    """When the tiles of one Tensor engine are free."""

    def __init__(self) -> None:
        self._until: dict[ArrayTile, float] = {}

    def free(self, tile: ArrayTile | None) -> float:
        """When everything that overlaps a tile (None: the whole array) is over."""
        if not self._until:
            return 0.0
        until = self._until.items()
        return max((end for t, end in until if tile is None or t.overlaps(tile)), default=0.0)

    @staticmethod
    def share(tile: ArrayTile | None, arch: Arch) -> float:
        """What a tile is of the whole array."""
        if tile is None:
            return 1.0
        return tile.rows * tile.columns / (arch.partitions * arch.stationary_free_max)

    def take(self, tile: ArrayTile | None, until: float) -> None:
        """Keep a tile until then; a product in the whole array follows all others."""
        if tile is None:
            self._until.clear()
        else:
            self._until[tile] = until
