"""The transformer with NKI operators against the same model in plain PyTorch."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import python

torch: Any = pytest.importorskip("torch")

FOLDER = Path(__file__).parents[2] / "examples" / "torch"
sys.path.insert(0, str(FOLDER))  # examples import their helpers by plain names, as scripts do
transformer: Any = importlib.import_module("transformer")

# A rounding to bfloat16 changes a number by up to 2**-8 = 0.4 %. Over 50 steps the loss of plain
# PyTorch moves by 0.2 % when it rounds where the operators do, and so does that of the kernels.
LIMIT = 1e-2
SMALL = transformer.Size(vocabulary=11, hidden=24, heads=3, layers=2, intermediate=40, sequence=13)


def loss_of(model: Any, sequences: Any) -> Any:
    logits = model(sequences[:, :-1]).flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, sequences[:, 1:].flatten())


def gradients(model: Any, sequences: Any) -> dict[str, Any]:
    model.zero_grad()
    loss_of(model, sequences).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.fixture
def model() -> Any:
    torch.manual_seed(3)
    return transformer.Transformer(SMALL, transformer.Launch(lnc=2, dtype=torch.float32))


def test_every_gradient_equals_pytorchs(model):
    sequences = transformer.batches(SMALL, batch=2, steps=1, seed=1)[0]
    expected = gradients(model.in_torch(), sequences)
    for name, got in gradients(model, sequences).items():
        torch.testing.assert_close(got, expected[name], rtol=1e-4, atol=1e-6, msg=name)


def test_gradients_match_finite_differences(model):
    """Along random directions of all weights, with differences in float64."""
    sequences = transformer.batches(SMALL, batch=2, steps=1, seed=2)[0]
    found = gradients(model, sequences)
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        exact = model.in_torch().double()
        start = {name: p.detach().clone() for name, p in exact.named_parameters()}
        way = {name: torch.randn(p.shape, generator=random).double() for name, p in start.items()}
        values = []
        for step in (1e-5, -1e-5):
            exact.load_state_dict({name: p + step * way[name] for name, p in start.items()})
            values.append(loss_of(exact, sequences).item())
        slope = sum(float((found[name] * way[name]).sum()) for name in way)
        assert slope == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4)


def test_bfloat16_on_one_core_and_two_gives_the_same_losses():
    curves = [
        transformer.both(SMALL, transformer.Launch(lnc=lnc), steps=2, seed=0) for lnc in (1, 2)
    ]
    assert curves[0][1] == curves[1][1]
    for ours, theirs in curves:
        assert ours == pytest.approx(theirs, rel=LIMIT)


@pytest.mark.slow
def test_fifty_steps_follow_pytorchs_loss_curve():
    ours, theirs = transformer.both(transformer.Size(), transformer.Launch(lnc=2), 50, seed=0)
    assert ours == pytest.approx(theirs, rel=LIMIT)
    assert ours[-1] < ours[0] / 5  # it learns


@pytest.mark.slow
def test_the_script_runs():
    done = python(FOLDER / "transformer.py", "--steps", "2", "--lnc", "1")
    assert done.returncode == 0 and "of the loss" in done.stdout, done.stderr
