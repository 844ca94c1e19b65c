"""Actors of a world whose start fails halfway."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
import ray.exceptions

import nki_dist as nki
from nki_dist.core_actor import world_actors
from tests.hosts.kernels import add_halves


def test_a_start_that_failed_halfway_is_taken_up_again(monkeypatch):
    """What it left lives and hasn't been introduced; a second start must know both."""
    calls = []

    def await_start(*args: Any) -> list[Any]:
        answers = world_actors_await(*args)
        calls.append(len(answers))
        if len(calls) <= 2:  # who they are; then, with all known, the introduction
            raise ray.exceptions.ActorDiedError()
        return answers

    world_actors_await = world_actors.await_start
    monkeypatch.setattr(world_actors, "await_start", await_start)
    x = np.ones((8, 3), np.float32)
    with nki.World(ranks=2, lnc=2, cores_per_actor=1) as world:
        outs = world.run(add_halves, x, x)
    assert calls == [4] * 4  # each start asks all four who they are, as none was introduced before
    for out in outs:
        np.testing.assert_array_equal(out, x + x)
