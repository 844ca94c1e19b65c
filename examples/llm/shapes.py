"""Shapes of known models, and checkpoints of them with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from config import Config, UsageError

_QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
_MOE = dict(
    _QWEN3,
    model_type="qwen3_moe",
    architectures=["Qwen3MoeForCausalLM"],
    num_experts=128,
    num_experts_per_tok=8,
    norm_topk_prob=True,
    num_key_value_heads=4,
)
_LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
_LLAMA3 = dict(_LLAMA, rope_scaling=None, max_position_embeddings=8192)
_LLAMA2 = dict(_LLAMA3, vocab_size=32000, rope_theta=1e4, max_position_embeddings=16384)


def _shape(
    of: dict[str, Any], hidden: int, inner: int, layers: int, heads: int, kv: int = 8, **more: Any
) -> dict[str, Any]:
    size = "moe_intermediate_size" if "num_experts" in of else "intermediate_size"
    sizes = {"hidden_size": hidden, size: inner, "num_hidden_layers": layers}
    sizes.update(num_attention_heads=heads, num_key_value_heads=kv)
    return {**of, **sizes, **more}


SHAPES = {
    "qwen3-0.6b": _shape(_QWEN3, 1024, 3072, 28, 16, tie_word_embeddings=True),
    "qwen3-8b": _shape(_QWEN3, 4096, 12288, 36, 32),
    "qwen3-32b": _shape(_QWEN3, 5120, 25600, 64, 64),
    "qwen3-30b-a3b": _shape(_MOE, 2048, 768, 48, 32, 4),
    "qwen3-235b-a22b": _shape(_MOE, 4096, 1536, 94, 64, 4),
    "llama-2-7b": _shape(_LLAMA2, 4096, 11008, 32, 32, 32),
    "llama-2-13b": _shape(_LLAMA2, 5120, 13824, 40, 40, 40),
    "llama-2-70b": _shape(_LLAMA2, 8192, 28672, 80, 64),
    "mistral-7b": _shape(_LLAMA2, 4096, 14336, 32, 32),
    "llama-3-8b": _shape(_LLAMA3, 4096, 14336, 32, 32),
    "llama-3-70b": _shape(_LLAMA3, 8192, 28672, 80, 64),
    "llama-3.1-8b": _shape(_LLAMA, 4096, 14336, 32, 32),
    "llama-3.1-70b": _shape(_LLAMA, 8192, 28672, 80, 64),
    "llama-3.1-405b": _shape(_LLAMA, 16384, 53248, 126, 128),
}


def known(name: str, layers: int | None = None) -> dict[str, Any]:
    """The `config.json` of a known model, perhaps with fewer layers.

    Raises:
        UsageError: nobody knows it here.
    """
    if name not in SHAPES:
        raise UsageError(f"no shape {name}; known: {', '.join(SHAPES)}")
    if layers is not None and layers < 1:
        raise UsageError(f"{layers} layers; at least 1")
    return SHAPES[name] | ({"num_hidden_layers": layers} if layers else {})


def write(folder: Path, shape: dict[str, Any], seed: int = 0) -> None:
    """A checkpoint of random weights, a shard for each layer, as Hugging Face saves them.

    Raises:
        UsageError: the folder has a model already, or safetensors isn't installed.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError:
        raise UsageError("pip install safetensors, which writes checkpoints") from None
    if (folder / "config.json").exists():
        raise UsageError(f"{folder} has a config.json already; without --make it is used")
    folder.mkdir(parents=True, exist_ok=True)
    rng, files = np.random.default_rng(seed), {}
    for number, tensors in enumerate(tensors_of(Config.of(shape))):
        name, made = f"model-{number:05d}.safetensors", {}
        for key, size in tensors.items():
            if len(size) == 1:
                value = np.ones(size, np.float32)
            else:
                value = rng.standard_normal(size, np.float32)
                value *= 0.02  # as transformers' initializer_range
            made[key] = value.astype(ml_dtypes.bfloat16)
        save_file(made, folder / name, metadata={"format": "pt"})
        files.update(dict.fromkeys(made, name))
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(shape, indent=1))


def tensors_of(c: Config) -> Iterator[dict[str, tuple[int, ...]]]:
    """The names and shapes of a model's tensors, layer by layer; outputs are rows."""
    hidden, q, kv = c.hidden, c.heads * c.head_dim, c.kv_heads * c.head_dim
    for layer in range(c.layers):
        found: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (q, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, q),
        }
        if c.kind != "llama":
            found["self_attn.q_norm"] = found["self_attn.k_norm"] = (c.head_dim,)
        if c.experts:
            found["mlp.gate"] = (c.experts, hidden)
        for at in [f"mlp.experts.{e}" for e in range(c.experts)] or ["mlp"]:
            found[f"{at}.gate_proj"] = found[f"{at}.up_proj"] = (c.inner, hidden)
            found[f"{at}.down_proj"] = (hidden, c.inner)
        yield {f"model.layers.{layer}.{name}.weight": size for name, size in found.items()}
    ends = {"model.embed_tokens.weight": (c.vocabulary, hidden), "model.norm.weight": (hidden,)}
    yield ends if c.tied else ends | {"lm_head.weight": (c.vocabulary, hidden)}
