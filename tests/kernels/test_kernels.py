"""Prebuilt kernels against NumPy in float64: values, gradients, odd shapes, one core and two."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy.special import erf

import nki_dist as nki
from nki_dist import kernels
from nki_dist.errors import NkiValidationError
from nki_dist.kernels import vision
from nki_dist.kernels.attention import (
    allocated_fused_self_attn_for_SD_small_head_size,
    fused_self_attn_for_SD_small_head_size,
)
from nki_dist.kernels.rms_norm import allocated_fused_rms_norm_qkv

both_lnc = pytest.mark.parametrize("lnc", [1, 2])
TYPES = {"f32": (np.float32, 2e-5), "bf16": (ml_dtypes.bfloat16, 2e-2)}
both_types = pytest.mark.parametrize("kind", TYPES)


def arrays(kind: str, *shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(TYPES[kind][0]) for shape in shapes]


def wide(*values: np.ndarray) -> list[np.ndarray]:
    return [v.astype(np.float64) for v in values]


def run(kernel: Any, lnc: int, *args: Any, **options: Any) -> Any:
    return nki.simulate(kernel[lnc])(*args, **options)


def check(got: np.ndarray, expected: np.ndarray, limit: float) -> None:
    assert got.shape == expected.shape
    assert np.abs(got.astype(np.float64) - expected).max() <= limit * np.abs(expected).max()


@both_lnc
@both_types
@pytest.mark.parametrize("turn", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(kind, lnc, turn):
    a, b = arrays(kind, (150, 200), (200, 530))
    given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turn, strict=True)]
    got = run(kernels.matmul, lnc, *given, transpose_lhs=turn[0], transpose_rhs=turn[1])
    a64, b64 = wide(a, b)
    check(got, a64 @ b64, TYPES[kind][1])


@both_lnc
@pytest.mark.parametrize("turn", [(False, False), (True, True)])
def test_a_matmul_too_deep_for_sbuf(lnc, turn):
    a, b = arrays("f32", (140, 4200), (4200, 515))
    given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turn, strict=True)]
    got = run(kernels.matmul, lnc, *given, transpose_lhs=turn[0], transpose_rhs=turn[1])
    check(got, wide(a)[0] @ wide(b)[0], TYPES["f32"][1])
    dry = nki.World(ranks=1, lnc=lnc, host="inprocess", dry=True)
    deep = [nki.TensorSpec((40000, n), np.float32) for n in (140, 515)]
    assert dry.run(kernels.matmul, *map(dry.put, deep), transpose_lhs=True).shape == (140, 515)


def test_matmul_refuses_what_does_not_fit():
    a, b = arrays("f32", (3, 4), (5, 6))
    with pytest.raises(NkiValidationError, match="contracts 4 elements of lhs with 5 of rhs"):
        run(kernels.matmul, 1, a, b)


@both_lnc
@both_types
def test_softmax_and_its_gradient(kind, lnc):
    x, dy = arrays(kind, (130, 37), (130, 37))
    y = run(kernels.softmax, lnc, x)
    (x64,) = wide(x)
    expected = np.exp(x64 - x64.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    check(y, expected, TYPES[kind][1])
    y64, dy64 = wide(y, dy)
    dx = y64 * (dy64 - (y64 * dy64).sum(1, keepdims=True))
    check(run(kernels.softmax_backward, lnc, y, dy), dx, TYPES[kind][1])


def norm(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    return x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * weight


@both_lnc
@both_types
def test_rms_norm_and_its_gradient(kind, lnc):
    x, weight, dy = arrays(kind, (257, 72), (72,), (257, 72))
    x64, w64, dy64 = wide(x, weight, dy)
    limit = TYPES[kind][1]
    check(run(kernels.rms_norm, lnc, x, weight), norm(x64, w64), limit)
    dx, dweight = run(kernels.rms_norm_backward, lnc, x, weight, dy)
    r = 1 / np.sqrt((x64**2).mean(1, keepdims=True) + 1e-6)
    g = dy64 * w64
    check(dx, r * (g - x64 * r**2 * (x64 * g).mean(1, keepdims=True)), limit)
    check(dweight, (x64 * r * dy64).sum(0), limit)


@both_lnc
@both_types
def test_rmsnorm_qkv(kind, lnc):
    x, weight, qkv = arrays(kind, (200, 160), (160,), (160, 3 * 48))
    x64, w64, qkv64 = wide(x, weight, qkv)
    got = run(kernels.rmsnorm_qkv, lnc, x, weight, qkv)
    check(got, norm(x64, w64) @ qkv64, TYPES[kind][1])


def gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cdf = (1 + erf(x / np.sqrt(2))) / 2
    return x * cdf, cdf + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = 1 / (1 + np.exp(-x))
    return x * s, s * (1 + x * (1 - s))


@both_lnc
@both_types
@pytest.mark.parametrize("activation", [gelu, silu])
def test_mlp_and_its_gradients(kind, lnc, activation):
    x, up, down, dy = arrays(kind, (140, 72), (72, 200), (200, 72), (140, 72))
    up, down = (w / 8 for w in (up, down))
    up, down = (w.astype(x.dtype) for w in (up, down))
    limit = TYPES[kind][1]
    x64, up64, down64, dy64 = wide(x, up, down, dy)
    value, slope = activation(x64 @ up64)
    name = activation.__name__
    check(run(kernels.mlp, lnc, x, up, down, activation=name), value @ down64, limit)
    inner = (dy64 @ down64.T) * slope
    got = run(kernels.mlp_backward, lnc, x, up, down, dy, activation=name)
    for one, expected in zip(got, (inner @ up64.T, x64.T @ inner, value.T @ dy64), strict=True):
        check(one, expected, limit)


def test_mlp_names_the_activations_it_has():
    x, up, down = arrays("f32", (3, 4), (4, 5), (5, 4))
    with pytest.raises(NkiValidationError, match="activation='tanh'; allowed: gelu, silu"):
        run(kernels.mlp, 1, x, up, down, activation="tanh")


def attention(q, k, v, causal, scale, window=None):
    """Reference: q (b, h, d, s), k (b, n, d, t), v (b, n, t, d); weights, output, log-sum-exp."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, group, axis=1) for t in (k, v))
    scores = scale * np.einsum("bhdi,bhdj->bhij", q, k)
    if causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    if window is not None:
        far = np.tri(*scores.shape[2:], k=-window, dtype=bool)
        scores = np.where(far, -np.inf, scores)
    top = scores.max(3, keepdims=True)
    lse = np.log(np.exp(scores - top).sum(3, keepdims=True)) + top
    weights = np.exp(scores - lse)
    return weights, weights @ v, lse[..., 0]


def attention_gradients(q, k, v, dy, causal, scale, window=None):
    """dq, dk, dv in the layouts of q, k and v; dy is (b, h, s, d)."""
    weights, out, _ = attention(q, k, v, causal, scale, window)
    group, batch, kv_heads = q.shape[1] // k.shape[1], k.shape[0], k.shape[1]
    wide_k, wide_v = (np.repeat(t, group, axis=1) for t in (k, v))
    dweights = dy @ wide_v.swapaxes(2, 3)
    dscores = scale * weights * (dweights - (dy * out).sum(3, keepdims=True))

    def over_group(t: np.ndarray) -> np.ndarray:
        return t.reshape(batch, kv_heads, group, *t.shape[2:]).sum(2)

    dq = np.einsum("bhij,bhdj->bhdi", dscores, wide_k)
    dk = over_group(np.einsum("bhij,bhdi->bhdj", dscores, q))
    return dq, dk, over_group(weights.swapaxes(2, 3) @ dy)


@both_lnc
@both_types
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries", "keys"), [(2, 1, 200, 200), (3, 3, 72, 650)]
)
def test_flash_attention_and_its_gradients(kind, lnc, causal, heads, kv_heads, queries, keys):
    if causal and queries != keys:
        keys = 150
    b, d, limit = 1, 40, TYPES[kind][1]
    shapes = (b, heads, d, queries), (b, kv_heads, d, keys), (b, kv_heads, keys, d)
    q, k, v, dy = arrays(kind, *shapes, (b, heads, queries, d))
    q64, k64, v64, dy64 = wide(q, k, v, dy)
    scale = 0.2
    options = {"use_causal_mask": causal, "softmax_scale": scale}
    out, lse = run(kernels.flash_fwd, lnc, q, k, v, **options)
    _, expected, expected_lse = attention(q64, k64, v64, causal, scale)
    check(out, expected, limit)
    flat = lse.swapaxes(2, 3).reshape(b, heads, -1)
    check(flat[:, :, :queries], expected_lse, limit)
    assert not flat[:, :, queries:].any()
    turned = (np.ascontiguousarray(t.swapaxes(2, 3)) for t in (v, out, dy))
    got = run(kernels.flash_attn_bwd, lnc, q, k, *turned, lse, **options)
    want = attention_gradients(q64, k64, v64, dy64, causal, scale)
    for one, expected in zip(got, (*want[:2], want[2].swapaxes(2, 3)), strict=True):
        check(one, expected, limit)


@both_lnc
@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(300, 300, 2), (140, 700, 70), (700, 700, 130)]
)
def test_a_sliding_window_and_its_gradients(lnc, queries, keys, window):
    b, heads, kv_heads, d, scale = 1, 2, 1, 24, 0.2
    shapes = (b, heads, d, queries), (b, kv_heads, d, keys), (b, kv_heads, keys, d)
    q, k, v, dy = arrays("f32", *shapes, (b, heads, queries, d))
    q64, k64, v64, dy64 = wide(q, k, v, dy)
    options = {"use_causal_mask": True, "softmax_scale": scale, "sliding_window": window}
    out, lse = run(kernels.flash_fwd, lnc, q, k, v, **options)
    _, expected, _ = attention(q64, k64, v64, True, scale, window)
    check(out, expected, 2e-5)
    turned = (np.ascontiguousarray(t.swapaxes(2, 3)) for t in (v, out, dy))
    got = run(kernels.flash_attn_bwd, lnc, q, k, *turned, lse, **options)
    want = attention_gradients(q64, k64, v64, dy64, True, scale, window)
    for one, expected in zip(got, (*want[:2], want[2].swapaxes(2, 3)), strict=True):
        check(one, expected, 5e-5)


def test_a_window_that_leaves_queries_without_keys_is_refused():
    q, k, v = arrays("f32", (1, 1, 8, 30), (1, 1, 8, 16), (1, 1, 16, 8))
    with pytest.raises(NkiValidationError, match=r"sliding_window=4 needs .* 30 queries, 16 keys"):
        run(kernels.flash_fwd, 1, q, k, v, sliding_window=4)
    with pytest.raises(NkiValidationError, match="got use_causal_mask=False"):
        run(kernels.flash_fwd, 1, k, k, v, sliding_window=4, use_causal_mask=False)


def test_flash_config():
    q, k, v = arrays("bf16", (1, 2, 16, 130), (1, 2, 16, 130), (1, 2, 130, 16))
    out, lse = run(kernels.flash_fwd, 2, q, k, v)
    config = kernels.FlashConfig(should_transpose_v=True, training=False)
    turned = np.ascontiguousarray(v.swapaxes(2, 3))
    assert run(kernels.flash_fwd, 2, q, k, turned, config=config).tobytes() == out.tobytes()
    rounded = run(kernels.flash_fwd, 2, q, k, v, config=kernels.FlashConfig(lse_dtype="bfloat16"))[
        1
    ]
    assert rounded.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(rounded, lse.astype(ml_dtypes.bfloat16))
    with pytest.raises(NkiValidationError, match="lse_dtype='f99'"):
        run(kernels.flash_fwd, 1, q, k, v, config=kernels.FlashConfig(lse_dtype="f99"))


@both_lnc
@both_types
@pytest.mark.parametrize("causal", [True, False])
def test_small_head_attention(kind, lnc, causal):
    q, k, v = arrays(kind, (3, 40, 200), (3, 200, 40), (3, 200, 40))
    q64, k64, v64 = (t[:, None] for t in wide(q, k, v))
    _, expected, _ = attention(q64, k64.swapaxes(2, 3), v64, causal, 0.125)
    got = run(fused_self_attn_for_SD_small_head_size, lnc, q, k, v, use_causal_mask=causal)
    check(got, expected[:, 0], TYPES[kind][1])
    k_turned = np.ascontiguousarray(k.swapaxes(1, 2))
    turned = run(allocated_fused_self_attn_for_SD_small_head_size, lnc, q, k_turned, v, causal)
    assert np.ascontiguousarray(turned.swapaxes(1, 2)).tobytes() == got.tobytes()


@both_lnc
@both_types
def test_rms_norm_qkv_of_beta_1(kind, lnc):
    hidden, weights = arrays(kind, (2, 70, 150), (150, 90))
    h64, w64 = wide(hidden, weights)
    got = run(allocated_fused_rms_norm_qkv, lnc, hidden, weights)
    expected = np.stack([norm(rows, np.ones(150)) @ w64 for rows in h64])
    check(got, expected, TYPES[kind][1])


@both_lnc
@pytest.mark.parametrize("size", [(10, 13), (2, 3), (7, 5), (300, 4)])
def test_resize_nearest(lnc, size):
    (x,) = arrays("bf16", (3, 7, 5, 20))
    if size[0] == 300:
        (x,) = arrays("f32", (3, 150, 5, 6))
    height, width = x.shape[1:3]
    expected = x[:, np.arange(size[0]) * height // size[0]]
    expected = expected[:, :, np.arange(size[1]) * width // size[1]]
    shape = (3, *size, x.shape[3])
    got = run(vision.resize_nearest_fixed_dma_kernel, lnc, x, shape)
    assert got.dtype == x.dtype and np.array_equal(got, expected)
    into = np.empty(shape, x.dtype)
    run(vision.resize_nearest_fixed_dma_kernel, lnc, x, into)
    assert np.array_equal(into, expected)


def test_resize_keeps_batch_and_channels():
    (x,) = arrays("f32", (3, 7, 5, 20))
    with pytest.raises(NkiValidationError, match=r"out_shape \(3, 9, 9, 21\) must be"):
        run(vision.resize_nearest_fixed_dma_kernel, 1, x, (3, 9, 9, 21))


def test_a_grid_of_instances_gives_the_bits_of_one_core():
    q, k, v = arrays("bf16", (2, 2, 16, 130), (2, 2, 16, 130), (2, 2, 130, 16))
    whole = run(kernels.flash_fwd, 1, q, k, v)
    parts = nki.simulate(kernels.flash_fwd[2, 2])(q, k, v)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(whole, parts, strict=True))


def test_attention_refuses_what_it_does_not_do():
    q, k, v = arrays("f32", (1, 2, 8, 16), (1, 2, 8, 16), (1, 2, 16, 8))
    with pytest.raises(NkiValidationError, match=r"got dropout_p=0\.1, allowed 0"):
        run(kernels.flash_fwd, 1, q, k, v, dropout_p=0.1)
    with pytest.raises(NkiValidationError, match=r"v .* don't fit"):
        run(kernels.flash_fwd, 1, q, k, k)
    with pytest.raises(NkiValidationError, match="sinks aren't implemented: pass sinks=None"):
        run(kernels.flash_attn_bwd, 1, q, q, q, q, q, q, sinks=q)
    with pytest.raises(NkiValidationError, match="lse is"):
        run(kernels.flash_attn_bwd, 1, q, k, k, q, q, q)
