"""What is asked of launches on the host debug, whose ranks may run programs of their own."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.launcher.queries import Querier
from nki_dist.launcher.session import session
from tests.insight.lines import lines_of

LINES = lines_of(__file__)


@pytest.mark.parametrize("lnc", [1, 2])
def test_launches_of_debugged_ranks_are_asked_with_the_inputs_and_programs_of_each(lnc):
    """Ranks go round another number of times, as Python says of their values."""

    @nki.jit
    def powers(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        data = nl.load(x)
        while np.asarray(data).max() < 100.0:
            # LINE squared
            nisa.activation(dst=data, op=nl.square, data=data)
        if nl.program_id(0) == 0:
            nl.store(out, data)
        return out

    def ask(record):
        origin = record.origin(output=0, index=(1, 2), rank=2)
        return [len(record.writes("data", core=0, rank=n)) for n in range(3)], origin

    session().observer = querier = Querier(ask)
    try:
        with nki.World(ranks=3, lnc=lnc, host="debug") as world:
            given = [np.full((2, 3), n, np.float32) for n in (2, 200, 11)]
            outputs = world.run(powers, nki.per_rank(given))
    finally:
        session().observer = None
    ((_, _, (writes, origin)),) = querier.answers
    assert [float(out[0, 0]) for out in outputs] == [256, 200, 121]
    assert writes == [4, 1, 2]
    assert origin.value == 121 and origin[0].rank == 2
    assert origin[0].location == LINES["squared"]
    assert [s.values.tolist() for s in origin.sources if s.kind == "argument"] == [[11]]
