"""nl.tile_size: sizes and limits of the platform a kernel is compiled for.

Outside a kernel the platform of the environment counts, because kernels read these constants at
import time too.
"""

from __future__ import annotations

import os
from typing import Any

from nki_dist.isa.tracing import platform


def _figure(name: str, doc: str, unit: int = 1) -> Any:
    """A figure of the platform, in units of so many bytes."""

    def read(self: TileSize) -> int:
        return int(getattr(platform(), name)) // unit

    return property(read, doc=doc)


class TileSize:
    """Hardware limits for tiles. Sizes in elements unless the name says bytes."""

    pmax = _figure("partitions", "Partitions of a tile.")
    psum_bank_fmax_bytes = _figure("psum_bank_bytes", "Bytes of a PSUM bank per partition.")
    psum_bank_fmax = psum_fmax = _figure(
        "psum_bank_bytes", "float32 elements of a PSUM bank per partition.", unit=4
    )
    gemm_stationary_fmax = _figure(
        "stationary_free_max", "Free size of a matmul's stationary operand."
    )
    gemm_moving_fmax = _figure("gemm_moving_fmax", "Free size of a matmul's moving operand.")
    bn_stats_fmax = _figure("bn_stats_fmax", "Free size of bn_stats.")
    psum_min_align = _figure("psum_min_align", "Alignment of a PSUM address in bytes.")
    sbuf_min_align = _figure("sbuf_min_align", "Alignment of an SBUF address in bytes.")
    sbuf_size_bytes = _figure("sbuf_bytes", "Bytes of SBUF over all partitions.")
    sbuf_fmax_bytes = total_available_sbuf_size = _figure(
        "sbuf_usable_bytes", "Usable SBUF bytes per partition."
    )
    sbuf_fmax = _figure(
        "sbuf_usable_bytes", "Usable SBUF per partition in float32 elements.", unit=4
    )

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks a kernel can use.

        One fewer from trn2 on when NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE=true reserves the last.
        """
        if os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() in ("1", "true"):
            return platform().psum_banks_with_pe_transpose
        return platform().psum_banks


tile_size = TileSize()
