"""What may choose the rows of a DMA: a vector offset.

Follows: `NkiTensor.ap` and `vector_select` of the NKI 0.6 documentation.
"""

from __future__ import annotations

from typing import Any

from nki_dist.errors import invalid
from nki_dist.program import Storage, sbuf


def check_vector_offset(storage: Storage, index: Any) -> None:
    """Rows of a tensor in HBM are chosen by an SBUF tile of integers.

    Args:
        storage: of the rows.
        index: the tile, a view.

    Raises:
        NkiValidationError: the rows aren't in HBM, or the tile isn't such a one.
    """
    if not storage.region.is_hbm:
        message = f"a vector offset indexes tensors in HBM; {storage.label} isn't"
        raise invalid(message, code="vector-offset")
    if index.buffer is not sbuf or not (index.free_size == 1 or len(index.shape) == 2):
        message = (
            "a vector offset is an SBUF tile of shape (P, 1), or (P, N) for dma_transpose; got "
            f"{index.shape} in {index.buffer.value}"
        )
        raise invalid(message, code="vector-offset", got=index.shape)
    if index.dtype.is_float:
        message = (
            f"a vector offset has dtype {index.dtype}, which doesn't hold every row number; "
            "allowed: integers, such as int32. Pass the row numbers as int32, or convert them with "
            "nisa.tensor_copy into an int32 tile"
        )
        raise invalid(message, code="vector-offset", got=index.dtype.name)
