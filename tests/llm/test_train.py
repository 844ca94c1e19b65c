"""examples/llm/train.py: gradients against differences of a loss, AdamW against its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
from tests.llm.reference import logits
from tests.llm.running import run

TOKENS = 37


def loss_of(shape: dict[str, Any], w: dict[str, np.ndarray], texts: np.ndarray) -> float:
    each = []
    for text in texts:
        z = logits({"rope_theta": 1e4, **shape}, w, text[:-1])
        top = z.max(1, keepdims=True)
        total = np.log(np.exp(z - top).sum(1)) + top[:, 0]
        each.append(total - z[np.arange(len(z)), text[1:]])
    return float(np.mean(each))


@pytest.mark.parametrize(
    "ranks, lnc, replicas",
    [
        (4, 2, 1),
        (4, 1, 2),
        pytest.param(1, 1, 1, marks=pytest.mark.slow),
        pytest.param(2, 2, 2, marks=pytest.mark.slow),
    ],
)
def test_a_step(ranks: int, lnc: int, replicas: int) -> None:
    import train
    from config import Config
    from weights import Layout

    c = Config.of(train.SHAPE)
    source, layout = train.random_tensors(c), Layout(ranks // replicas, lnc, replicas)
    rng = np.random.default_rng(ranks)
    texts = rng.integers(0, c.vocabulary, (replicas, TOKENS + 1), np.int32)
    with nki.World(ranks, lnc, host="inprocess") as world:
        trainer = train.Trainer(world, c, layout, source, TOKENS)
        before = [{k: _values(t) for k, t in of.items()} for of in trainer.weights]
        loss, gradients = trainer.step(texts)
        found = [{k: _values(t) for k, t in of.items()} for of in gradients]
        after = [{k: _values(t) for k, t in of.items()} for of in trainer.weights]
    assert loss == pytest.approx(loss_of(train.SHAPE, source.by_name, texts), rel=1e-5)
    wide = {k: v.astype(np.float64) for k, v in source.by_name.items()}
    for name in wide:  # along a random direction in each tensor
        way = rng.standard_normal(wide[name].shape)
        up, down = ({**wide, name: wide[name] + s * 1e-5 * way} for s in (1, -1))
        slope = (loss_of(train.SHAPE, up, texts) - loss_of(train.SHAPE, down, texts)) / 2e-5
        assert _along(trainer, found, name, way) == pytest.approx(slope, rel=2e-3, abs=2e-6), name
    rate, decay, _, _, epsilon = train.OPTIONS
    for old, new, of in zip(before, after, found):
        for k, w in old.items():
            g = of[k].reshape(replicas, -1, *of[k].shape[1:]).sum(0)
            g = np.tile(g, (replicas, *[1] * (g.ndim - 1))).reshape(w.shape)
            want = w * (1 - rate * decay) - rate * g / (np.abs(g) + epsilon)
            assert np.allclose(new[k], want, atol=2e-6), k


def _values(tensor: Any) -> np.ndarray:
    return np.stack(tensor.numpy())


def _along(trainer: Any, found: list[dict[str, np.ndarray]], name: str, way: np.ndarray) -> float:
    """The slope along a direction in one tensor, from all ranks' gradients."""
    import train

    zeros = {k: np.zeros_like(v) for k, v in train.random_tensors(trainer.config).by_name.items()}
    directions = train.of_rank(train.Tensors({**zeros, name: way}), trainer.config, trainer.layout)
    ranks, total = trainer.layout.ranks, 0.0
    for of, found_here in zip(directions, found):
        for k, (shape, of_one) in of.items():
            each = found_here[k].reshape(-1, ranks, *shape).sum(0).astype(np.float64)
            parts = [float(np.sum(each[rank] * of_one(rank))) for rank in range(ranks)]
            whole = k.startswith("norm")  # every rank has all of a norm's gradient
            total += parts[0] if whole else sum(parts)
    return total


def test_a_second_step_uses_its_moments() -> None:
    import train
    from config import Config
    from weights import Layout

    c = Config.of({**train.SHAPE, "num_hidden_layers": 1})
    rng, source = np.random.default_rng(0), train.random_tensors(c)
    texts = rng.integers(0, c.vocabulary, (2, 1, TOKENS + 1), np.int32)
    with nki.World(2, 1, host="inprocess") as world:
        trainer = train.Trainer(world, c, Layout(2, 1), source, TOKENS)
        weights, gradients = [_values(trainer.weights[-1]["head"])], []
        for text in texts:
            _, found = trainer.step(text)
            gradients.append(_values(found[-1]["head"]))
            weights.append(_values(trainer.weights[-1]["head"]))
    rate, decay, beta1, beta2, epsilon = train.OPTIONS
    m, v, w = 0.0, 0.0, weights[0].astype(np.float64)
    for n, g in enumerate(gradients, 1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        step = m / (1 - beta1**n) / (np.sqrt(v / (1 - beta2**n)) + epsilon)
        w = w * (1 - rate * decay) - rate * step
        assert np.allclose(weights[n], w, atol=3e-6)


@pytest.mark.slow  # the chain is that long in a real shape only: 6 s of a processor
def test_a_larger_shape_comes_to_an_end() -> None:
    """Its longest chain of events leads over transfers that moved their data out of order."""
    options = ("--dry", "--shape", "llama-3.1-8b", "--layers", 1, "--ranks", 8)
    done = run("train.py", *options)
    assert done.returncode == 0, done.stderr
    assert "us simulated" in done.stdout and "nan" not in done.stdout


def test_as_a_program(tmp_path: Any) -> None:
    done = run("train.py", "--dry", "--ranks", 8, "--data-parallel", 2, "--report", tmp_path / "p")
    assert done.returncode == 0, done.stderr
    assert "us simulated" in done.stdout and "attention_backward" in (tmp_path / "p").read_text()
