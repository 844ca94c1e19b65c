"""nl.tile_size: sizes and limits of the platform a kernel is compiled for.

Outside a kernel the platform of the environment counts, because kernels read these constants at
import time too.
"""

from __future__ import annotations

import os

from nki_dist import arch
from nki_dist.arch import Arch
from nki_dist.isa.spec import current_tracer, tracing


def _arch() -> Arch:
    return current_tracer().arch if tracing() else arch.from_environment()


class TileSize:
    """Hardware limits for tiles. Sizes in elements unless the name says bytes."""

    @property
    def pmax(self) -> int:
        """Partitions of a tile."""
        return _arch().partitions

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank per partition."""
        return _arch().psum_bank_bytes

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements of a PSUM bank per partition."""
        return _arch().psum_bank_bytes // 4

    psum_fmax = psum_bank_fmax

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free size of a matmul's stationary operand."""
        return _arch().stationary_free_max

    @property
    def gemm_moving_fmax(self) -> int:
        """Free size of a matmul's moving operand."""
        return _arch().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Free size of bn_stats."""
        return _arch().bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Alignment of a PSUM address in bytes."""
        return _arch().psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of an SBUF address in bytes."""
        return _arch().sbuf_min_align

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks a kernel can use.

        One fewer from trn2 on when NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE=true reserves the last.
        """
        if os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() in ("1", "true"):
            return _arch().psum_banks_with_pe_transpose
        return _arch().psum_banks

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF over all partitions."""
        return _arch().sbuf_bytes

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable SBUF bytes per partition."""
        return _arch().sbuf_usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Usable SBUF per partition in float32 elements."""
        return _arch().sbuf_usable_bytes // 4

    total_available_sbuf_size = sbuf_fmax_bytes


tile_size = TileSize()
