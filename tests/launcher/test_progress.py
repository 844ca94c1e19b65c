"""Launches that show their progress."""

import numpy as np
import pytest

import nki_dist as nki
from nki_dist.runtime.progress import VARIABLE
from tests.launcher import kernels as K


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_launches_are_unchanged_by_it(monkeypatch, capsys, host):
    monkeypatch.setenv(VARIABLE, "1")
    x, w = np.ones((4, 3), np.float32), np.full((4, 3), 2, np.float32)
    with nki.World(ranks=2, lnc=2, host=host) as world:
        for out in world.run(K.add_weights, x, w):
            np.testing.assert_array_equal(out, x + w)
    assert "Traceback" not in capsys.readouterr().err
