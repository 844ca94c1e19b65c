"""Kernels of nki-library in a model: the published ones where they are, and stand-ins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")

from tests.llm.reference import generated, small
from tests.llm.running import PROMPT, generate, run, write
from tests.llm.stand_in import library

PUBLISHED = Path(os.environ.get("NKI_REF", "checkouts")) / "nki-library"
published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="NKI_REF has no nki-library")
SIZES = {
    "hidden_size": 256,
    "head_dim": 64,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
}
ATTENTION = {"qkv", "attention_cte", "output_projection_cte", "attention_tkg"}
DENSE = {*ATTENTION, "output_projection_tkg", "mlp", "rmsnorm_tkg"}
EXPERTS = {*DENSE, "router_topk"} - {"mlp"}


def checked(
    folder: Path, shape: dict[str, Any], ranks: int, lnc: int, *more: str
) -> dict[str, Any]:
    """Tokens and logits in bfloat16 with the published library; what the program says."""
    tokens, want = generated(shape, write(folder, shape, 1, 0.06), PROMPT, 3)
    options = ("--ranks", ranks, "--lnc", lnc, "--dtype", "bfloat16", "--library", PUBLISHED, *more)
    found = generate(folder, *options)
    assert found["tokens"] == tokens
    for logits, exact in zip(found["logits"], want):
        assert np.abs(logits - exact).max() < 3e-2 * np.abs(exact).max()
    return found


@published
@pytest.mark.parametrize("kind, used", [("qwen3", DENSE), ("qwen3_moe", EXPERTS)])
@pytest.mark.parametrize("ranks, lnc", [(1, 1), (2, 2), (4, 1)])
def test_the_published_ones(
    tmp_path: Path, kind: str, used: set[str], ranks: int, lnc: int
) -> None:
    found = checked(tmp_path, small(kind, **SIZES), ranks, lnc)
    assert set(found["library_kernels"]) == used


@published
@pytest.mark.parametrize("kind, used", [("qwen3", DENSE), ("qwen3_moe", EXPERTS)])
def test_the_published_ones_where_ranks_share_tokens(
    tmp_path: Path, kind: str, used: set[str]
) -> None:
    more = ["--sequence-parallel"] + ["--expert-parallel"] * (kind == "qwen3_moe")
    found = checked(tmp_path, small(kind, **SIZES), 2, 2, *more)
    assert set(found["library_kernels"]) == used


@published
@pytest.mark.parametrize("hidden, layers, lnc", [(256, 5, 1), (512, 2, 2)])
def test_the_published_layers_of_a_token(
    tmp_path: Path, hidden: int, layers: int, lnc: int
) -> None:
    pytest.importorskip("torch")  # its package imports it
    sizes = {**SIZES, "hidden_size": hidden, "num_hidden_layers": layers}
    found = checked(tmp_path, small("llama", **sizes), 4, lnc)
    assert "transformer_tkg" in found["library_kernels"]
    assert "attention_tkg" not in found["library_kernels"]
    assert found["launches"] == 2 + layers + 2 * (2 + -(-layers // 4))  # four layers at once


def stand_in(tmp_path: Path, shape: dict[str, Any], working: Any, *more: Any) -> dict[str, Any]:
    """In a process of its own: what it imports is called as the library is."""
    prompt, folder = ",".join(map(str, PROMPT)), library(tmp_path / "library", *working)
    options = ("--prompt", prompt, "--tokens", 3, "--library", folder, "--json", *more)
    done = run("generate.py", tmp_path / "model", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    Path(found["logits_file"]).unlink()
    return found


@pytest.mark.parametrize(
    "kind, working, more",
    [
        ("qwen3", (), ("--lnc", 1)),
        ("qwen3_moe", ("attention_tkg", "rmsnorm_tkg", "router_topk"), ("--ranks", 2)),
        ("llama", ("rmsnorm_tkg",), ("--ranks", 2, "--sequence-parallel")),
        ("qwen3_moe", ("router_topk",), ("--ranks", 2, "--sequence-parallel", "--expert-parallel")),
    ],
)
def test_theirs_and_ours_where_theirs_refuse(
    tmp_path: Path, kind: str, working: tuple[str, ...], more: tuple[Any, ...]
) -> None:
    shape = small(kind, **SIZES)
    tokens, _ = generated(shape, write(tmp_path / "model", shape), PROMPT, 3)
    found = stand_in(tmp_path, shape, working, *more)
    assert found["tokens"] == tokens
    assert found["library_kernels"] == sorted(working)


@pytest.mark.slow
def test_what_a_launch_does_not_ask_for_is_not_used(tmp_path: Path) -> None:
    """A dense model has no router; experts whose weights aren't renormalised keep ours."""
    shape = small("qwen3_moe", **SIZES, norm_topk_prob=False)
    tokens, _ = generated(shape, write(tmp_path / "model", shape), PROMPT, 3)
    found = stand_in(tmp_path, shape, ("router_topk", "rmsnorm_tkg"), "--lnc", 1)
    assert found["tokens"] == tokens
    assert found["library_kernels"] == ["rmsnorm_tkg"]
    shape = small("qwen3", **SIZES)
    write(tmp_path / "model", shape)
    found = stand_in(tmp_path, shape, ("router_topk", "rmsnorm_tkg"), "--lnc", 1)
    assert found["library_kernels"] == ["rmsnorm_tkg"]


@pytest.mark.parametrize("kind", ["llama", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_layers_of_a_token_in_one_launch(tmp_path: Path, kind: str) -> None:
    """The stand-in leaves a token as it is; heads that are normalised are ours."""
    shape = small(kind, **SIZES, num_hidden_layers=5)
    w = write(tmp_path / "model", shape)
    tokens, _ = generated(shape, w, PROMPT, 3)
    found = stand_in(tmp_path, shape, ("transformer_tkg",), "--lnc", 1)
    if kind == "qwen3":
        assert (found["tokens"], found["library_kernels"]) == (tokens, [])
        return
    after, _ = generated({**shape, "num_hidden_layers": 0}, w, tokens[:1], 2)
    assert found["tokens"] == [tokens[0], *after]
    assert found["library_kernels"] == ["transformer_tkg"]
    assert found["launches"] == 2 + 5 + 2 * (2 + 2)
