"""nki-library's kernels with the arguments of its tests, by a row's configuration.

Inputs are zeros but for values that steer a kernel: simulated time depends on shapes. Big arrays of
zeros take no memory until somebody writes to them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import nki_dist.language as nl
from bench.accuracy.checkouts import library

BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3
DTYPES = {"bf16": BF16, "fp16": np.float16, "fp32": np.float32, "fp8e4": FP8}
_NORMS_WITH_WEIGHTS = ("RMS_NORM", "LAYER_NORM")
_MOST_TOKENS_GENERATED = 96  # more, and the MLP's kernel is that of context encoding
_SCALE_COLUMNS = 4  # of float8 input that carries the scale of each row


class Launch(NamedTuple):
    """A kernel with its arguments, and what it is checked against (World's `check`, None: the
    default)."""

    kernel: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    check: str | None = None


def zeros(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return np.zeros(shape, dtype)


def _scales(columns: int) -> np.ndarray:
    return np.ones((128, columns), np.float32)


def mlp(
    lnc: int,
    hidden: int,
    inter: int,
    batch: int = 1,
    seqlen: int = 1,
    dtype: str = "bf16",
    q_dtype: str = "",
    quant: str = "NONE",
    norm: str = "NO_NORM",
    act: str = "SiLU",
    **options: Any,
) -> Launch:
    """MLP: gate, up and down projections.

    Token generation quantises weights only. Context encoding takes float8 input, with columns for
    each row's scale where `quant` is ROW; its weights are bfloat16 where nothing is quantised.
    """
    types, plain = library("core.utils.common_types"), DTYPES[dtype]
    encoding, quantised = batch * seqlen > _MOST_TOKENS_GENERATED, quant != "NONE"
    width = hidden + _SCALE_COLUMNS * (encoding and quant == "ROW")
    x = zeros(batch, seqlen, width, dtype=FP8 if encoding and quantised else plain)
    shapes = {"gate": (hidden, inter), "up": (hidden, inter), "down": (inter, hidden)}
    weight = FP8 if quantised else BF16 if encoding else plain
    kwargs: dict[str, Any] = {
        "activation_fn": types.ActFnType[act],
        "normalization_type": types.NormType[norm],
        "quantization_type": types.QuantizationType[quant],
        "output_dtype": nl.bfloat16,
        "eps": 1e-6,
        "skip_gate_proj": options.get("skip_gate", False),
        "store_fused_add_result": options.get("store_add", False),
    }
    if not encoding:
        kwargs |= {
            "use_tkg_gate_up_proj_column_tiling": options.get("gateup_coltile", False),
            "use_tkg_down_proj_column_tiling": options.get("down_coltile", False),
            "use_tkg_down_proj_optimized_layout": options.get("down_optlayout", False),
        }
    for name, (_, out) in shapes.items():
        if options.get(f"{name}_bias"):
            kwargs[f"{name}_proj_bias_tensor"] = zeros(1, out, dtype=plain)
        if quantised:
            kwargs[f"{name}_w_scale"] = _scales(out if quant == "ROW" else 1)
    if norm in _NORMS_WITH_WEIGHTS:
        kwargs["normalization_weights_tensor"] = zeros(1, hidden, dtype=plain)
    if options.get("norm_bias"):
        kwargs["normalization_bias_tensor"] = zeros(1, hidden, dtype=plain)
    if options.get("fused_add"):
        kwargs["fused_add_tensor"] = zeros(batch, seqlen, hidden, dtype=plain)
    if quant == "STATIC":
        kwargs |= {"gate_up_in_scale": _scales(1), "down_in_scale": _scales(1)}
    weights = (zeros(*shape, dtype=weight) for shape in shapes.values())
    return Launch(library("core.mlp.mlp").mlp, (x, *weights), kwargs)


def rmsnorm_quant(
    lnc: int, hidden: int, seqlen: int, quant: str, lower_bound: float, quant_only: bool = False
) -> Launch:
    """RMS norm, if it isn't `quant_only`, and quantisation."""
    module, types = library("core.rmsnorm.rmsnorm_quant"), library("core.utils.common_types")
    options = module.RmsNormQuantKernelArgs(
        quantization_type=types.QuantizationType[quant],
        lower_bound=lower_bound,
        norm_type=types.NormType["NO_NORM" if quant_only else "RMS_NORM"],
        eps=1e-6,
    )
    gamma = zeros(1, hidden) if lnc > 1 else zeros(hidden)
    return Launch(module.rmsnorm_quant_kernel, (zeros(1, seqlen, hidden), gamma, options), {})


def rmsnorm_tkg(
    lnc: int,
    hidden: int,
    dtype: str,
    batch: int = 1,
    seqlen: int = 1,
    hidden_actual: int | None = None,
    hidden_dim_tp: bool = False,
) -> Launch:
    """RMS norm of token generation, whose output has the hidden dimension on partitions."""
    kind, tokens = DTYPES[dtype], batch * seqlen
    kwargs = {
        "input": zeros(batch, seqlen, hidden, dtype=kind),
        "gamma": zeros(1, hidden, dtype=kind),
        "output": zeros(128, tokens, hidden // 128, dtype=kind),
        "hidden_actual": hidden_actual,
        "hidden_dim_tp": hidden_dim_tp,
    }
    return Launch(library("core.subkernels.rmsnorm_tkg").rmsnorm_tkg, (), kwargs)


def attention(
    lnc: int,
    bs: int,
    s_kv: int,
    d: int,
    dtype: str,
    s_q: int = 0,
    s_q_part: int = 0,
    bs_kv: int = 0,
    scale: float = 1.0,
    prior: int = 0,
    prior_used: int = 0,
    causal: bool = False,
    sink: bool = False,
    sw: int = 0,
    cp_rank: int | None = None,
    cp_deg: int | None = None,
    **layouts: bool,
) -> Launch:
    """Attention of context encoding, with `prior` cached keys of which `prior_used` count.

    With `cp_deg`, one rank's part of the queries, contiguous and always causal.
    """
    kind, queries, heads = DTYPES[dtype], s_q or s_q_part, bs_kv or bs

    def laid_out(batch: int, length: int, by_rows: bool) -> np.ndarray:
        return zeros(*((batch, length, d) if by_rows else (batch, d, length)), dtype=kind)

    tp_k = layouts.get("tp_k", False)
    kwargs: dict[str, Any] = {
        "scale": scale,
        "causal_mask": causal or cp_deg is not None,
        "sliding_window": sw,
        **{name: layouts.get(name, False) for name in ("tp_q", "tp_k", "tp_out")},
    }
    if prior:
        kwargs |= {
            "k_prior": laid_out(heads, prior, tp_k),
            "v_prior": laid_out(heads, prior, True),
            "prior_used_len": np.full((1,), prior_used, np.int32),
        }
    if sink:
        kwargs["sink"] = np.full((bs, 1), 20, np.float32)
    if cp_deg is not None and cp_rank is not None:
        offset = np.full((1, 1), cp_rank * queries, np.int32)
        kwargs |= {"cp_offset": offset, "global_cp_deg": cp_deg}
    q = laid_out(bs, queries, layouts.get("tp_q", False))
    k, v = laid_out(heads, s_kv, tp_k), laid_out(heads, s_kv, True)
    return Launch(library("core.attention.attention_cte").attention_cte, (q, k, v), kwargs)
