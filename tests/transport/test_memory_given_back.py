"""Shared memory of messages is given back when stacks grow, and messages go on afterwards."""

import numpy as np
import pytest
import ray

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist.core_actor import job
from nki_dist.core_actor.links import Attach
from tests.collectives import kernels as K
from tests.collectives.worlds import normal

EVERY = ncc.ReplicaGroup([[0, 1, 2]])
COLUMNS = (3000, 6000, 120, 12000)  # of 66 rows: the third finds room


def exchanged(world, columns, reads_in_place):
    xs = nki.per_rank(normal(columns, 3, (66, columns), np.float32))
    if reads_in_place:
        outs = world.run(K.all_reduce, xs, EVERY, nl.add)
    else:
        outs = world.run(K.all_to_all, xs, EVERY)
    return [out.tobytes() for out in outs]


@pytest.mark.parametrize(
    ("much", "reads_in_place", "names"),
    [(0, False, 3), (1 << 40, False, 1), (1 << 40, True, 3)],
    ids=["much", "little", "stacks that others have mapped"],
)
def test_larger_stacks_have_the_memory_of_messages(much, reads_in_place, names, monkeypatch):
    monkeypatch.setattr(job, "MUCH", much)
    with nki.World(3, host="inprocess") as world:
        expected = [exchanged(world, columns, reads_in_place) for columns in COLUMNS]
    tokens = []
    with nki.World(3, cores_per_actor=1, transport="ring") as world:
        for columns, outs in zip(COLUMNS, expected):
            assert exchanged(world, columns, reads_in_place) == outs
            tokens.append(world.host._messages.token)
        late = [Attach(token, {9: "no handle"}) for token in dict.fromkeys(tokens)]
        for attach in late[:-1]:  # sent before its memory was given back: nobody looks at it
            ray.get(world.host.actors[1].attach.remote(attach))
        with pytest.raises(AttributeError, match="node_id"):
            ray.get(world.host.actors[1].attach.remote(late[-1]))
    assert len(late) == names and tokens[1] == tokens[2]
