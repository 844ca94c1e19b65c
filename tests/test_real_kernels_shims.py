"""What stands in for nki-library's harness, on tests made as its own are."""

from types import SimpleNamespace

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.real_kernels import shims


@nki.jit
def incremented(cache):
    """Returns the cache as it was, and adds one to it in place."""
    was = nl.ndarray(cache.shape, dtype=cache.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(cache.shape, dtype=cache.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=cache)
    nisa.dma_copy(dst=was, src=tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=cache, src=tile)
    return was


class LaterGolden:
    """Computes what is expected when it's asked for, as the harness's class does."""

    def __init__(self, compute):
        self.compute = compute

    @property
    def golden(self):
        return {"was": self.compute()}


def harness_test(kernel, inputs, golden, ranks=2):
    """What nki-library's tests hand to its orchestrator, as far as it is read."""
    return SimpleNamespace(
        kernel_func=kernel,
        kernel_input=inputs,
        compiler_input=SimpleNamespace(
            logical_nc_config=1, platform_target=SimpleNamespace(get_nc_gen=lambda: "trn2")
        ),
        inference_args=SimpleNamespace(collective_ranks=ranks),
        validation_args=SimpleNamespace(
            golden_output=golden, relative_accuracy=0.0, absolute_accuracy=0.0
        ),
    )


def test_what_is_expected_is_computed_from_inputs_as_they_were():
    cache = np.arange(12, dtype=np.float32).reshape(3, 4)
    shims._run_ranks(harness_test(incremented, {"cache": cache}, LaterGolden(lambda: cache)))
    np.testing.assert_array_equal(cache, np.arange(12).reshape(3, 4))


def test_a_kernel_on_one_rank_leaves_the_tests_arrays_alone(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")
    cache, seen = np.zeros((3, 4), np.float32), []

    def simulate(kernel, inputs, lnc):
        seen.append(lnc)
        return kernel[lnc](inputs["cache"])

    shims._on_copies(simulate)(incremented, {"cache": cache}, 1)
    assert seen == [1]
    assert not cache.any()


def test_a_wrong_result_is_refused():
    cache = np.zeros((3, 4), np.float32)
    wrong = harness_test(incremented, {"cache": cache}, LaterGolden(lambda: cache + 0.5))
    with pytest.raises(AssertionError, match=r"rank 0, was: off by 0\.5"):
        shims._run_ranks(wrong)
