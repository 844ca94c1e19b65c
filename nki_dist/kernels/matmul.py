"""Matrix multiplication, with either operand transposed."""

from __future__ import annotations

from nki_dist.kernels.blocks import matmul_into, output, require
from nki_dist.launcher.kernel import jit


@jit
def matmul(lhs, rhs, transpose_lhs=False, transpose_rhs=False):
    """lhs @ rhs, summed in float32 and rounded once.

    The fastest form is `transpose_lhs=True`: the Tensor engine contracts over partitions, so K as
    dimension 0 of both operands needs no transposes on the way.

    Args:
        lhs: (M, K), or (K, M) with `transpose_lhs`.
        rhs: (K, N), or (N, K) with `transpose_rhs`.
        transpose_lhs, transpose_rhs: multiply by the operand's transpose.

    Returns:
        (M, N) of lhs's dtype. Cores share the rows.
    """
    require(len(lhs.shape) == len(rhs.shape) == 2, f"matmul of {lhs.shape} and {rhs.shape}")
    k, m = lhs.shape if transpose_lhs else lhs.shape[::-1]
    other, n = rhs.shape[::-1] if transpose_rhs else rhs.shape
    require(k == other, f"matmul contracts {k} elements of lhs with {other} of rhs")
    out = output((m, n), lhs.dtype)
    matmul_into(out, lhs, rhs, transpose_lhs, transpose_rhs)
    return out


__all__ = ["matmul"]
