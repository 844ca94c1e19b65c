"""Llama and Qwen3 in NumPy, float64, as plainly as possible: what the kernels are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np


def small(kind: str, **more: Any) -> dict[str, Any]:
    """The `config.json` of a small model; sizes that nothing divides evenly by 128."""
    names = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    moe = {"num_experts": 16, "num_experts_per_tok": 3, "moe_intermediate_size": 96}
    moe["norm_topk_prob"] = True
    shape = dict(
        architectures=[names.get(kind, "Qwen3MoeForCausalLM")],
        vocab_size=300,
        hidden_size=192,
        intermediate_size=352,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=48,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        torch_dtype="float32",
        **(moe if kind == "qwen3_moe" else {}),
    )
    return {**shape, **more}


def logits(c: dict[str, Any], w: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Of every position of a text: (tokens, vocabulary)."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    eps, d = c["rms_norm_eps"], c["head_dim"]
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    x, count = w["model.embed_tokens.weight"][ids], len(ids)
    turns = np.arange(count)[:, None] * inverse_frequencies(c)
    angles = np.concatenate([turns, turns], 1)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * w[name]

    def rotated(x: np.ndarray) -> np.ndarray:
        partner = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return x * np.cos(angles)[:, None] + partner * np.sin(angles)[:, None]

    for n in range(c["num_hidden_layers"]):
        at = f"model.layers.{n}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = ((h @ w[f"{at}self_attn.{p}_proj.weight"].T).reshape(count, -1, d) for p in "qkv")
        if at + "self_attn.q_norm.weight" in w:
            q = norm(q, at + "self_attn.q_norm.weight")
            k = norm(k, at + "self_attn.k_norm.weight")
        q, k = rotated(q), rotated(k)
        k, v = (np.repeat(t, heads // kv_heads, 1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d)
        scores += np.triu(np.full((count, count), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("hqk,khd->qhd", weights, v).reshape(count, -1)
        x = x + context @ w[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm.weight")
        x = x + (_experts(c, w, h, at) if "num_experts" in c else _swiglu(w, h, at + "mlp."))
    head = "model.embed_tokens" if c.get("tie_word_embeddings") else "lm_head"
    return norm(x, "model.norm.weight") @ w[f"{head}.weight"].T


def inverse_frequencies(c: dict[str, Any]) -> np.ndarray:
    """Of rotary embedding, Llama 3.1's stretching included, frequency by frequency."""
    d = c["head_dim"]
    rope = c.get("rope_scaling")
    found = []
    for i in range(d // 2):
        f = c["rope_theta"] ** (-2 * i / d)
        if rope:
            length, factor = rope["original_max_position_embeddings"], rope["factor"]
            turns = length * f / (2 * np.pi)
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            smooth = min(max((turns - low) / (high - low), 0), 1)
            f = (1 - smooth) * f / factor + smooth * f
        found.append(f)
    return np.array(found)


def _swiglu(w: dict[str, np.ndarray], h: np.ndarray, at: str) -> np.ndarray:
    gate, up = (h @ w[f"{at}{name}_proj.weight"].T for name in ("gate", "up"))
    return (gate / (1 + np.exp(-gate)) * up) @ w[f"{at}down_proj.weight"].T


def _experts(c: dict[str, Any], w: dict[str, np.ndarray], h: np.ndarray, at: str) -> np.ndarray:
    scores = h @ w[at + "mlp.gate.weight"].T
    share = np.exp(scores - scores.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    out = np.zeros_like(h)
    for token in range(len(h)):
        chosen = np.argsort(-share[token])[: c["num_experts_per_tok"]]
        total = share[token, chosen].sum() if c["norm_topk_prob"] else 1
        for e in chosen:
            one = _swiglu(w, h[token : token + 1], f"{at}mlp.experts.{e}.")
            out[token] += share[token, e] / total * one[0]
    return out


def generated(
    c: dict[str, Any], w: dict[str, np.ndarray], prompt: list[int], count: int
) -> tuple[list[int], np.ndarray]:
    """Tokens, and the logits of each."""
    ids, found = list(prompt), []
    for _ in range(count):
        found.append(logits(c, w, np.array(ids))[-1])
        ids.append(int(found[-1].argmax()))
    return ids[len(prompt) :], np.stack(found)
