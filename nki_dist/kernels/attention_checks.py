"""What the attention kernels refuse, forward and backward."""

from __future__ import annotations

import nki_dist.language as nl
from nki_dist.kernels.blocks import require


def check_attention(q, k, v, v_fits, logit_bias, dropout_p):
    """Shapes (q (batch, heads, d, queries), k (batch, kv heads, d, keys)) and what isn't done.

    Raises:
        NkiValidationError: they don't fit, or a bias or dropout is asked for.
    """
    batch, heads, d, _ = q.shape
    require(
        len(k.shape) == 4 and k.shape[0] == batch and k.shape[2] == d and v_fits,
        f"q {q.shape}, k {k.shape} and v {v.shape} don't fit",
    )
    require(heads % k.shape[1] == 0, f"{heads} heads aren't a multiple of {k.shape[1]} kv heads")
    require(d <= nl.tile_size.pmax, f"d={d}; at most {nl.tile_size.pmax}")
    require(logit_bias is None, "a bias on the scores isn't implemented: pass logit_bias=None")
    require(dropout_p == 0, f"dropout isn't implemented: got dropout_p={dropout_p}, allowed 0")


def window_of(sliding_window, use_causal_mask, queries, keys):
    """How many keys a query sees, its own included; None for no limit.

    Raises:
        NkiValidationError: a window without the causal mask, or with queries that see no key.
    """
    if sliding_window is None or sliding_window <= 0:
        return None
    require(
        use_causal_mask and queries <= keys,
        f"sliding_window={sliding_window} needs use_causal_mask=True and no more queries than "
        f"keys, got use_causal_mask={use_causal_mask}, {queries} queries, {keys} keys",
    )
    return sliding_window
