"""Flash attention, forward and backward: scores are never stored.

Layouts are those of the field's kernels of these names. A launch grid of any shape will do: work is
dealt out in turn over all its programs, whether they are `kernel[2]`'s cores or the (batch, head)
instances of Beta 1 launches.

Not done here: dropout and a bias on the scores, which are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from nki_dist.kernels.attention_backward import flash_attn_bwd
from nki_dist.kernels.attention_checks import check_attention, window_of
from nki_dist.kernels.blocks import (
    load,
    load_tiles,
    output,
    programs,
    require,
    sbuf,
    tiles,
    turned,
)
from nki_dist.kernels.online_softmax import attend, log_sum_exp
from nki_dist.launcher.kernel import jit


@dataclass(frozen=True)
class FlashConfig:
    """Options of flash_fwd under the names of Beta 1.

    Attributes:
        seq_tile_size, attn_core_tile_size: accepted, no effect: tiles have one size.
        training: also return the log-sum-exp, which the backward pass needs.
        should_transpose_v: v is (batch, kv heads, d, keys).
        lse_dtype: of the log-sum-exp, the name of an `nl` type; "" for float32.
    """

    seq_tile_size: int = 2048
    attn_core_tile_size: int = 256
    training: bool = True
    should_transpose_v: bool = False
    lse_dtype: str = ""

    def log_sum_dtype(self) -> Any:
        dtype = getattr(nl, self.lse_dtype, None) if self.lse_dtype else nl.float32
        if dtype is None:
            raise NkiValidationError(
                f"lse_dtype={self.lse_dtype!r}; allowed: a name such as float32",
                code="kernel-contract",
            )
        return dtype


@jit
def flash_fwd(
    q,
    k,
    v,
    seed=None,
    logit_bias=None,
    *,
    softmax_scale=None,
    use_causal_mask=True,
    sliding_window=-1,
    mixed_precision=True,
    dropout_p=0.0,
    config=None,
):
    """softmax(scale * q.T @ k) @ v for every head, with the log-sum-exp of its scores.

    Args:
        q: (batch, heads, d, queries), d at most 128: it is contracted, so it lies on partitions.
        k: (batch, kv heads, d, keys); heads are a multiple of kv heads.
        v: (batch, kv heads, keys, d).
        softmax_scale: factor on the scores, 1 / sqrt(d) by default.
        use_causal_mask: query i sees keys 0...i only.
        sliding_window: and of those the last so many, if positive; needs the causal mask and no
            more queries than keys.
        config: a FlashConfig.
        seed, mixed_precision: accepted, no effect: sums are always float32.
        logit_bias, dropout_p: must be None and 0.

    Returns:
        out (batch, heads, queries, d) like q, and lse (batch, heads, 128, queries / 128) in
        float32: row i of tile t is query 128 * t + i. Only out, if `config.training` is False.
    """
    batch, heads, d, queries = q.shape
    kv_heads, keys = k.shape[1], k.shape[3]
    config = FlashConfig() if config is None else config
    v_shape = (d, keys) if config.should_transpose_v else (keys, d)
    check_attention(q, k, v, v.shape == (batch, kv_heads, *v_shape), logit_bias, dropout_p)
    window = window_of(sliding_window, use_causal_mask, queries, keys)
    scale = d**-0.5 if softmax_scale is None else softmax_scale
    pmax = nl.tile_size.pmax
    out = output((batch, heads, queries, d), q.dtype)
    lse_shape = (batch, heads, pmax, -(-queries // pmax))
    lse = output(lse_shape, config.log_sum_dtype()) if config.training else None
    count, me = programs()
    item = 0
    for b in range(batch):
        for h in range(heads):
            kv = h * kv_heads // heads
            of_head, finished = None, []
            for i, (q0, width) in enumerate(tiles(0, queries, pmax)):
                # Query tiles in turn: later ones see more keys, so halves would be uneven.
                item += 1
                if item % count != me:
                    continue
                if of_head is None:
                    of_head = load(k[b, kv]), load_tiles(v[b, kv], config.should_transpose_v)
                result = sbuf((width, d), q.dtype)
                q_tile, first = load(q[b, h, :, q0 : q0 + width]), q0 if use_causal_mask else None
                sums = attend(result, q_tile, *of_head, scale, first, window)
                nisa.dma_copy(dst=out[b, h, q0 : q0 + width, :], src=result)
                finished.append((i, sums))
            if lse is not None:  # all at once, as exp and log have different activation tables
                for i, sums in finished:
                    _store_log_sum(lse[b, h, :, i : i + 1], *sums, scale)
    return out if lse is None else (out, lse)


def _store_log_sum(dst, total, minus_max, scale):
    """The log-sum-exp of a tile of queries, zero where there is no query."""
    result = sbuf(dst.shape, dst.dtype)
    nisa.memset(dst=result, value=0.0)
    log_sum_exp(result[0 : total.shape[0], :], total, minus_max, scale)
    nisa.dma_copy(dst=dst, src=result)


def small_head_attention(q, k, v, use_causal_mask, keys_first, out_turned):
    """Attention of one head per image with the scale 1/8, as in Stable Diffusion's U-Nets."""
    batch, d, queries = q.shape
    k_shape = (batch, v.shape[1], d) if keys_first else (batch, d, v.shape[1])
    require(
        len(v.shape) == 3 and k.shape == k_shape and v.shape[2] == d <= nl.tile_size.pmax,
        f"q {q.shape}, k {k.shape} and v {v.shape} don't fit",
    )
    out = output((batch, d, queries) if out_turned else (batch, queries, d), q.dtype)
    count, me = programs()
    for b in range(me, batch, count):
        keys = load_tiles(k[b], transpose=True)[0] if keys_first else load(k[b])
        values = load_tiles(v[b])
        for q0, width in tiles(0, queries, nl.tile_size.pmax):
            result = sbuf((width, d), q.dtype)
            first = q0 if use_causal_mask else None
            attend(result, load(q[b, :, q0 : q0 + width]), keys, values, 0.125, first)
            if out_turned:
                nisa.dma_copy(dst=out[b, :, q0 : q0 + width], src=turned(result))
            else:
                nisa.dma_copy(dst=out[b, q0 : q0 + width, :], src=result)
    return out


@jit
def fused_self_attn_for_SD_small_head_size(
    q_ref, k_ref, v_ref, use_causal_mask=False, mixed_precision=True
):
    """softmax(q.T @ k.T / 8) @ v of each image.

    Args:
        q_ref: (batch, d, queries), d at most 128.
        k_ref, v_ref: (batch, keys, d).
        use_causal_mask: query i sees keys 0...i only.
        mixed_precision: accepted, no effect: sums are always float32.

    Returns:
        (batch, queries, d) like q. Programs take images in turn.
    """
    return small_head_attention(q_ref, k_ref, v_ref, use_causal_mask, True, False)


@jit
def allocated_fused_self_attn_for_SD_small_head_size(
    q_ref, k_ref, v_ref, use_causal_mask=False, mixed_precision=True
):
    """fused_self_attn_for_SD_small_head_size with k and the result as (batch, d, sequence).

    Memory is placed by the compiler here, whatever the name says.
    """
    return small_head_attention(q_ref, k_ref, v_ref, use_causal_mask, False, True)


__all__ = [
    "FlashConfig",
    "allocated_fused_self_attn_for_SD_small_head_size",
    "flash_attn_bwd",
    "flash_fwd",
    "fused_self_attn_for_SD_small_head_size",
]
