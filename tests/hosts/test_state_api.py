"""Ray's own tools see one actor per core. They need the dashboard, hence a process of its own."""

from __future__ import annotations

import pytest

from tests.programs import said

PROGRAM = """
import numpy as np, ray
context = ray.init("local", include_dashboard=True, log_to_driver=False)
from ray.util.state import list_actors
from tests.hosts.kernels import add_halves
x = np.ones((8, 3), np.float32)
for lnc in (1, 2):
    add_halves[lnc](x, x)
    actors = list_actors(
        address="http://" + context.dashboard_url,
        filters=[("class_name", "=", "NeuronCore"), ("state", "=", "ALIVE")],
    )
    print(lnc, len(actors), len({a.pid for a in actors}))
"""


@pytest.mark.slow
def test_one_actor_per_core_while_a_launch_is_warm():
    pytest.importorskip("aiohttp", reason="the state API needs ray[default]")
    done = said("-c", PROGRAM)
    # The one-core world and the two-core world are both warm in the end: 1, then 1 + 2.
    assert done.split("\n")[:2] == ["1 1 1", "2 3 3"]
