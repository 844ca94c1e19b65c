"""What a checkpoint's `config.json` says, in the forms that transformers and the hub have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {
    "LlamaForCausalLM": "llama",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}


class UsageError(ValueError):
    """Something that the user can put right; the message is one line."""


@dataclass(frozen=True)
class Config:
    """A model's sizes.

    Attributes:
        inner: of the MLP, or of each expert.
        rope: parameters of rotary embedding, as transformers names them.
        experts, chosen: how many there are, and how many a token gets; 0 of a dense model.
        renormalise: the weights of the chosen experts add up to 1.
    """

    kind: str
    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    longest: int
    eps: float
    tied: bool
    dtype: str
    rope: dict[str, Any] = field(default_factory=dict)
    experts: int = 0
    chosen: int = 0
    renormalise: bool = True

    @property
    def weights(self) -> int:
        """How many numbers a token's way through the model is multiplied with."""
        of_mlp = 3 * self.hidden * self.inner * (self.chosen or 1)
        of_attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (of_mlp + of_attention) + self.vocabulary * self.hidden

    @classmethod
    def read(cls, folder: Path) -> Config:
        """Of a folder with a `config.json`.

        Raises:
            UsageError: there is none, or no such model is known here.
        """
        file = folder / "config.json"
        if not file.is_file():
            raise UsageError(
                f"{folder} is no checkpoint: it has no config.json. --make SHAPE writes one; --dry "
                "takes the name of a shape, too"
            )
        try:
            return cls.of(json.loads(file.read_text()))
        except (json.JSONDecodeError, KeyError) as error:
            raise UsageError(f"{file} can't be read: {error!r}") from None

    @classmethod
    def of(cls, c: dict[str, Any]) -> Config:
        """Of the contents of a `config.json`."""
        name = (c.get("architectures") or [None])[0]
        kind = KINDS.get(name) if name else c.get("model_type")
        if kind not in KINDS.values():
            raise UsageError(f"architecture {name or kind}; known: {', '.join(KINDS)}")
        for option in ("attention_bias", "mlp_bias", "use_sliding_window", "mlp_only_layers"):
            if c.get(option):
                raise UsageError(f"{option}={c[option]} isn't supported")
        experts = c.get("num_experts", c.get("num_local_experts", 0)) if "moe" in kind else 0
        if experts and c.get("decoder_sparse_step", 1) != 1:
            raise UsageError("decoder_sparse_step other than 1 isn't supported")
        rope = dict(c.get("rope_parameters") or c.get("rope_scaling") or {})
        rope.setdefault("rope_theta", c.get("rope_theta", 10000.0))
        rope.setdefault("rope_type", rope.get("type", "default"))
        if rope["rope_type"] not in ("default", "llama3"):
            raise UsageError(f"rotary embedding {rope['rope_type']}; known: default, llama3")
        heads = c["num_attention_heads"]
        return cls(
            kind=kind,
            vocabulary=c["vocab_size"],
            hidden=c["hidden_size"],
            inner=c["moe_intermediate_size" if experts else "intermediate_size"],
            layers=c["num_hidden_layers"],
            heads=heads,
            kv_heads=c.get("num_key_value_heads") or heads,
            head_dim=c.get("head_dim") or c["hidden_size"] // heads,
            longest=c.get("max_position_embeddings", 2048),
            eps=c["rms_norm_eps"],
            tied=c.get("tie_word_embeddings", False),
            dtype=str(c.get("dtype") or c.get("torch_dtype") or "bfloat16").removeprefix("torch."),
            rope=rope,
            experts=experts,
            chosen=c["num_experts_per_tok"] if experts else 0,
            renormalise=c.get("norm_topk_prob", False),
        )

    def angles(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of rotary embedding at positions 0 to count - 1: (head_dim, count)."""
        d, f32 = self.head_dim, np.float32
        speed = f32(1) / f32(self.rope["rope_theta"]) ** (np.arange(0, d, 2, dtype=f32) / f32(d))
        if self.rope["rope_type"] == "llama3":
            speed = _stretched(speed, self.rope)
        turns = np.outer(np.concatenate([speed, speed]), np.arange(count, dtype=f32))
        return np.cos(turns), np.sin(turns)

    def rotation(self) -> np.ndarray:
        """The matrix that gives rotary embedding each element's partner, x.T @ it: (d, d)."""
        d = self.head_dim
        made = np.zeros((d, d), np.float32)
        half = np.arange(d // 2)
        made[half + d // 2, half], made[half, half + d // 2] = -1, 1
        return made


def _stretched(speed: np.ndarray, rope: dict[str, Any]) -> np.ndarray:
    """Llama 3.1's: slow turns are stretched by `factor`, fast ones stay, with a ramp in between."""
    length, factor = rope["original_max_position_embeddings"], np.float32(rope["factor"])
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    waves = np.float32(2 * np.pi) / speed
    ramp = (length / waves - np.float32(low)) / np.float32(high - low)
    between = (1 - ramp) * speed / factor + ramp * speed
    return np.where(
        waves > length / low, speed / factor, np.where(waves < length / high, speed, between)
    ).astype(np.float32)
