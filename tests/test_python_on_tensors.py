"""NumPy and Python on tensors of a kernel."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist import errors
from tests.test_launching import A, here, same

# ---- NumPy and Python on tensors ----------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: 2 - t,
        lambda t: np.float32(3) * t,
        lambda t: -t,
        lambda t: np.exp(t),
        lambda t: np.sum(t),
        lambda t: np.concatenate([t, t]),
        lambda t: np.asarray(t),
        lambda t: np.float32(0) < t,
        lambda t: t != 0,
        lambda t: float(t),
        lambda t: [0, 1][t],
    ],
    ids=range(12),
)
def test_values_are_not_known_in_python(use):
    with pytest.raises(
        errors.NkiValidationError, match="only known when the kernel runs"
    ) as caught:
        here(nki.jit(lambda x: use(nl.load(x))))(A)
    assert caught.value.location.startswith(__file__)


def test_tensors_keep_their_identity():
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        u = nl.load(x)
        assert t in [t, u]
        assert {t: 1, u: 2}[u] == 2
        assert t != None  # noqa: E711
        return x

    same(here(kernel)(A), A)
