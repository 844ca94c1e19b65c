"""Whole models without values: whether they fit, and how long a token takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.llm.reference import small
from tests.llm.running import generate

PROMPT = [[1] * 64]


def test_70b_on_an_instance_and_an_ultraserver() -> None:
    one = generate(Path("llama-3.1-70b"), "--dry", "--ranks", 64, prompts=PROMPT)
    four = generate(
        Path("llama-3.1-70b"), "--dry", "--ranks", 256, "--data-parallel", 4, prompts=PROMPT
    )
    assert one["tokens"] == [] and one["launches"] == 3 * (80 + 2)
    bytes_of_weights = 70.6e9 * 2 / 64  # and tables, and repeated heads of keys
    assert bytes_of_weights < one["hbm_bytes"] < 1.15 * bytes_of_weights
    assert one["hbm_bytes"] == four["hbm_bytes"]
    assert one["us_per_token"] == four["us_per_token"]  # replicas don't wait for each other
    assert 5_000 < one["us_per_token"] < 30_000


def test_a_context_costs_attention_only() -> None:
    """Twice the cache that is looked at: as much more again as the first doubling at most."""
    times = {}
    for context in (512, 4096):
        options = ("--dry", "--ranks", 4, "--layers", 2, "--context", context)
        prompt = [[1] * (context - 100)]
        times[context] = generate(Path("qwen3-0.6b"), *options, prompts=prompt)["us_per_token"]
    assert times[512] < times[4096] < 2 * times[512]


def test_more_ranks_hold_less_each(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(small("qwen3_moe", vocab_size=2048)))
    dry = ("--dry", "--lnc", 1)
    found = [
        generate(tmp_path, *dry, "--ranks", n, *more, prompts=PROMPT)["hbm_bytes"]
        for n, more in ((2, ()), (4, ()), (4, ("--expert-parallel",)))
    ]
    assert found[1] == pytest.approx(found[0] / 2, rel=0.05)
    assert found[2] == found[1]


@pytest.mark.parametrize("shape", ["qwen3-8b", "llama-2-7b", "mistral-7b"])
def test_other_shapes(shape: str) -> None:
    options = ("--dry", "--layers", 1, "--lnc", 1, "--platform", "trn1", "--ranks", 32)
    assert generate(Path(shape), *options, prompts=PROMPT)["us_per_token"] > 0
