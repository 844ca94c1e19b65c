"""Shared memory of messages is given back when stacks grow, and messages go on afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import ray

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist.core_actor import ray_host
from nki_dist.core_actor.links import Attach
from tests.collectives import kernels as K
from tests.collectives.worlds import normal

EVERY = ncc.ReplicaGroup([[0, 1, 2]])


def sums(world, columns):
    xs = normal(columns, 3, (66, columns), np.float32)
    outs = world.run(K.all_to_all, nki.per_rank(xs), EVERY)
    world.run(K.all_reduce, nki.per_rank(xs), EVERY, nl.add)
    return [out.tobytes() for out in outs], world.host._messages.nbytes


@pytest.mark.parametrize("much", [0, 1 << 40])
def test_larger_stacks_have_the_memory_of_messages(much, monkeypatch):
    monkeypatch.setattr(ray_host, "MUCH", much)
    with nki.World(3, host="inprocess") as world:
        expected = [world.run(K.all_to_all, nki.per_rank(normal(n, 3, (66, n), np.float32)), EVERY)
                    for n in (3000, 6000, 120, 12000)]  # fmt: skip
    tokens, memories = [], []
    with nki.World(3, cores_per_actor=1, transport="ring") as world:
        for columns, outs in zip((3000, 6000, 120, 12000), expected):
            found, memory = sums(world, columns)
            assert found == [out.tobytes() for out in outs]
            memories.append(memory)
            tokens.append(world.host._messages.token)
        late = [Attach(token, 0, {}, (99, 0, 128)) for token in dict.fromkeys(tokens)]
        for attach in late[:-1]:  # sent before its ring was given back: nobody looks for that
            ray.get(world.host.actors[1].attach.remote(attach))
        with pytest.raises(KeyError, match="99"):
            ray.get(world.host.actors[1].attach.remote(late[-1]))
    assert len(set(tokens)) == (3 if much == 0 else 1)  # 120 columns find room
    assert memories[2] == memories[1]
