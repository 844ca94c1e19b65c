"""examples/llm/generate.py against a model in NumPy: layouts of ranks, kinds of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")

from tests.llm.reference import generated, small
from tests.llm.running import PROMPT, generate, run, write

ROPE = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "llama": small("llama", rope_scaling=ROPE),
    "qwen3": small("qwen3", tie_word_embeddings=True),
    "experts": small("qwen3_moe"),
    "all weights": small("qwen3_moe", norm_topk_prob=False, num_experts_per_tok=2),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a model, and its first tokens and their logits; made when it is asked for."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            folder = tmp_path_factory.mktemp("models") / name.replace(" ", "_")
            tensors = write(folder, MODELS[name], seed=len(name))
            made[name] = folder, tensors, *generated(MODELS[name], tensors, PROMPT, 3)
        return made[name]

    return of


def check(found: dict[str, Any], tokens: list[int], want: np.ndarray, limit: float = 1e-4) -> None:
    assert found["logits"].shape == want.shape
    assert np.abs(found["logits"] - want).max() <= limit * np.abs(want).max()
    assert found["tokens"] == tokens


@pytest.mark.parametrize(
    "name, options",
    [
        ("llama", "--ranks 1 --lnc 1"),
        ("llama", "--ranks 2 --lnc 2"),
        ("qwen3", "--ranks 4 --lnc 1"),
        ("qwen3", "--ranks 8 --lnc 2"),  # more than heads of keys
        ("qwen3", "--ranks 8 --lnc 1 --sequence-parallel"),  # 19 tokens aren't 8 times anything
        ("experts", "--ranks 2 --lnc 2"),
        ("experts", "--ranks 4 --lnc 1 --expert-parallel"),
        ("experts", "--ranks 8 --lnc 2 --expert-parallel --sequence-parallel"),  # 2 on a rank
        ("all weights", "--ranks 1 --lnc 2"),
    ],
)
def test_a_model_on_ranks_and_cores(models: Any, name: str, options: str) -> None:
    folder, _, tokens, want = models(name)
    found = generate(folder, *options.split())
    check(found, tokens, want)
    assert 0 < found["low_us"] < found["us_per_token"] < found["high_us"]
    assert found["launches"] == 3 * (2 + 2)


def test_replicas_have_prompts_of_their_own(models: Any) -> None:
    folder, tensors, tokens, want = models("qwen3")
    other = PROMPT[::-1]
    options = ("--ranks", 4, "--lnc", 1, "--data-parallel", 2)
    found = generate(folder, *options, prompts=[PROMPT, other])
    check(found, tokens, want)
    others, _ = generated(MODELS["qwen3"], tensors, other, 3)
    assert found["replicas"] == [tokens, others] and tokens != others


def test_bfloat16_and_a_context_of_its_own(models: Any) -> None:
    folder, _, tokens, want = models("qwen3")
    options = ("--ranks", 2, "--lnc", 1, "--dtype", "bfloat16")
    wide, narrow = generate(folder, *options, "--context", 256), generate(folder, *options)
    assert wide["tokens"][0] == tokens[0]
    assert np.abs(wide["logits"][0] - want[0]).max() < 5e-2 * np.abs(want).max()
    assert np.array_equal(wide["logits"], narrow["logits"])
    assert wide["hbm_bytes"] > narrow["hbm_bytes"]


def test_the_cache_goes_beyond_a_span(models: Any) -> None:
    """Tokens 127 to 130 of a text: the cache that is looked at grows from 128 places to 256."""
    folder, tensors, _, _ = models("llama")
    prompt = [(7 * n + 3) % 300 for n in range(126)]
    tokens, want = generated(MODELS["llama"], tensors, prompt, 5)
    found = generate(folder, "--ranks", 2, "--lnc", 1, prompts=[prompt], tokens=5)
    check(found, tokens, want)


@pytest.mark.parametrize("ranks, lnc", [(2, 2), (1, 1)])
def test_a_prompt_of_several_blocks(tmp_path: Path, ranks: int, lnc: int) -> None:
    """What ranks have of a block is added up while the next one is computed."""
    shape = small("llama", num_hidden_layers=1, max_position_embeddings=2048)
    prompt = [(7 * n * n + 3 * n) % 300 for n in range(1100)]
    tokens, want = generated(shape, write(tmp_path, shape), prompt, 1)
    check(
        generate(tmp_path, "--ranks", ranks, "--lnc", lnc, prompts=[prompt], tokens=1), tokens, want
    )


@pytest.mark.slow
def test_both_hosts_give_the_same_bits(models: Any) -> None:
    folder, _, tokens, want = models("experts")
    options = ("--ranks", 2, "--lnc", 2)
    here, ray = generate(folder, *options), generate(folder, *options, "--host", "ray")
    check(ray, tokens, want)
    assert here["logits"].tobytes() == ray["logits"].tobytes()


def test_as_a_program_with_a_page(models: Any, tmp_path: Path) -> None:
    folder, _, tokens, _ = models("llama")
    page = tmp_path / "page.html"
    prompt = ",".join(map(str, PROMPT))
    done = run(
        "generate.py", folder, "--prompt", prompt, "--tokens", 3, "--report", page, "--profile"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == list(map(str, tokens))
    assert "layer_of_token" in done.stdout and "us a token, simulated" in done.stdout
    assert "layer_of_token" in page.read_text()


def test_a_checkpoint_of_random_weights(tmp_path: Path) -> None:
    import shapes

    shape = dict(MODELS["experts"], num_hidden_layers=1)
    shapes.write(tmp_path / "made", shape, seed=3)
    first = generate(tmp_path / "made", "--ranks", 2, "--dtype", "float32", tokens=1)
    assert json.loads((tmp_path / "made" / "config.json").read_text()) == shape
    shapes.write(tmp_path / "again", shape, seed=3)
    again = generate(tmp_path / "again", "--ranks", 1, "--dtype", "float32", tokens=1)
    assert np.allclose(first["logits"], again["logits"], atol=1e-4)
