"""examples/training_step.py: a step's parts, at sizes that differ in data parallelism only."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
from tests.examples.scripts import run_script

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

FILE = Path(__file__).parents[2] / "examples" / "training_step.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("training_step", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["training_step"] = module
    spec.loader.exec_module(module)
    # A narrow model: what is looked at doesn't depend on its size.
    module.TOKENS, module.HIDDEN, module.INNER = 128, 512, 8192
    return module


def test_steps_of_one_and_two_ultraservers(example: Any) -> None:
    one, two = example.simulate(256), example.simulate(512)
    same = set(one.by_part) - {"gradients"}
    assert {p: one.by_part[p] for p in same} == {p: two.by_part[p] for p in same}
    assert len(same) == 7 and min(one.by_part.values()) > 0
    idle = pytest.approx(3 / 16 * sum(one.by_part[p] for p in same))
    assert one.idle == idle and two.idle == idle
    assert two.by_part["gradients"] > one.by_part["gradients"]
    assert 0 < one.exchanging < two.exchanging < two.total
    with pytest.raises(SystemExit, match="300 ranks; must be a multiple of 256"):
        example.simulate(300)


def test_who_works_with_whom(example: Any) -> None:
    layout = example.Layout.of(512)
    assert layout.tensor.groups[1] == tuple(range(64, 128))
    assert layout.data.groups[65] == (65, 321)
    assert layout.forwards[0] == (0, 64) and layout.backwards[0] == (64, 0)
    assert (0, 192) not in layout.forwards and (192, 256) not in layout.forwards
    assert len(layout.forwards) == 512 * 3 // 4


def test_its_launches_compute_what_they_say(example: Any) -> None:
    """With values, on four ranks; those that only call kernels of the package are tested there."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 128, 96), (4, 96, 32)))
    group, pairs = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    with nki.World(ranks=4, lnc=2, host="inprocess") as world:
        ranks = nki.per_rank
        turned = world.run(example.projected, ranks(list(x)), ranks(list(w)))
        y = [t.T.copy() for t in turned]
        back = world.run(example.projected_back, ranks(y), ranks([t.T.copy() for t in w]), group)
        gradient = world.run(example.weight_gradient, ranks(list(x)), ranks(y))
        dx = world.run(example.input_gradient, ranks(y), ranks(list(w)), group)
        sums = world.run(example.synchronised, ranks(list(x)), group)
        moved = world.run(example.handed_over, ranks(list(x)), pairs)
    want = x.astype(np.float64) @ w
    both = [[0, 1], [0, 1], [2, 3], [2, 3]]
    for rank in range(4):
        np.testing.assert_allclose(y[rank], want[rank], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(gradient[rank], x[rank].T @ want[rank], rtol=1e-3, atol=1e-2)
        full = sum(want[r] @ w[r].T for r in both[rank])
        np.testing.assert_allclose(back[rank], full, rtol=1e-3, atol=1e-2)
        np.testing.assert_allclose(dx[rank], full, rtol=1e-3, atol=1e-2)
        np.testing.assert_allclose(sums[rank], x[both[rank]].sum(0), rtol=1e-5, atol=1e-5)
    assert np.array_equal(moved[2], x[0]) and np.array_equal(moved[3], x[1])


def test_as_a_program() -> None:
    done = run_script("../training_step.py", "257")
    assert done.returncode == 1
    assert "must be a multiple of 256: whole UltraServers" in done.stderr
