"""Writes of a line that is carried out several times."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

LINES = lines_of(__file__)
X = np.random.default_rng(8).standard_normal((30, 14)).astype(np.float32)


def shared(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def test_rounds_of_a_loop_are_told_apart():
    def powers(x):
        out, data = shared(x), nl.load(x)
        for _ in nl.dynamic_range(4):
            # LINE powers
            nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=2.0)
        nl.store(out, data)
        return out

    record = nki.record(powers)(X)
    assert len(record.writes(LINES["powers"])) == 4
    for times in range(4):
        written = record.writes(LINES["powers"])[times]
        np.testing.assert_array_equal(written.values, X * 2.0 ** (times + 1))
    origin = record.origin(0, (3, 3))
    assert [s.location for s in origin].count(LINES["powers"]) == 4


def test_rounds_of_a_loop_of_python_are_told_apart():
    """Such loops are unrolled, so each round has instructions of its own."""

    def doubled(tile):
        # LINE doubled
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)

    def kernel(x):
        out, data = shared(x), nl.load(x)
        for _ in range(2):
            doubled(data)
            # LINE raised
            nisa.tensor_scalar(dst=data, data=data, op0=nl.add, operand0=1.0)
        for _ in range(3):
            # LINE halved
            nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=0.5)
        # LINE several
        nl.store(out, nl.exp(nl.negative(data)))
        return out

    record = nki.record(kernel)(X)
    wanted = X.copy()
    for times in range(2):
        for line, step in (("doubled", wanted), ("raised", np.float32(1))):
            wanted = wanted + step
            found = record.writes(LINES[line])[times].values
            np.testing.assert_array_equal(found, wanted)
    for times in range(3):  # nothing lies between the rounds
        found = record.writes(LINES["halved"])[times].values
        np.testing.assert_array_equal(found, wanted / 2.0 ** (times + 1))
    *_, stored = several = record.writes(LINES["several"])  # of negative, exp and store
    assert len(several) == 3 and stored.tensor == "out"
    np.testing.assert_array_equal(stored.values, record.outputs)
