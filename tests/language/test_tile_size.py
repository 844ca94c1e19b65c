"""nl.tile_size against the published figures, inside and outside kernels."""

import numpy as np
import pytest

import nki_dist.language as nl
from nki_dist import arch
from tests.language.run import run

KIB = 1024
SBUF = {"trn1": 192 * KIB, "trn2": 224 * KIB, "trn3": 256 * KIB}
NAMES = [
    "pmax",
    "psum_fmax",
    "psum_bank_fmax",
    "psum_bank_fmax_bytes",
    "gemm_stationary_fmax",
    "gemm_moving_fmax",
    "bn_stats_fmax",
    "psum_min_align",
    "sbuf_min_align",
    "psum_num_banks",
    "sbuf_size_bytes",
    "sbuf_fmax",
    "sbuf_fmax_bytes",
    "total_available_sbuf_size",
]


def sizes(platform):
    """All of tile_size, as a kernel for `platform` sees it."""
    seen = {}

    def kernel(x):
        for name in NAMES:
            seen[name] = getattr(nl.tile_size, name)

    run(kernel, np.zeros((1, 1), np.float32), platform=platform)
    return seen


@pytest.mark.parametrize("platform", SBUF)
def test_sizes_of_each_platform(platform):
    seen = sizes(platform)
    assert all(isinstance(value, int) and value > 0 for value in seen.values())
    assert seen["pmax"] == 128
    assert (seen["psum_bank_fmax_bytes"], seen["psum_num_banks"]) == (2 * KIB, 8)
    assert seen["psum_fmax"] == seen["psum_bank_fmax"] == 512
    assert (seen["gemm_stationary_fmax"], seen["gemm_moving_fmax"]) == (128, 512)
    assert seen["sbuf_size_bytes"] == 128 * SBUF[platform]
    assert SBUF[platform] - 32 * KIB < seen["sbuf_fmax_bytes"] < SBUF[platform]
    assert seen["sbuf_fmax_bytes"] == seen["total_available_sbuf_size"]
    assert seen["sbuf_fmax"] == seen["sbuf_fmax_bytes"] // 4


def test_outside_a_kernel_the_environment_says_which_platform(monkeypatch):
    for platform in SBUF:
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", platform)
        assert nl.tile_size.sbuf_size_bytes == 128 * SBUF[platform]


def test_a_bank_is_reserved_for_transposes_on_request(monkeypatch):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert [sizes(p)["psum_num_banks"] for p in SBUF] == [8, 7, 7]


def test_the_figures_are_the_architectures():
    for platform in SBUF:
        facts, seen = arch.get(platform), sizes(platform)
        assert seen["bn_stats_fmax"] == facts.bn_stats_fmax
        assert seen["sbuf_min_align"] == facts.sbuf_min_align
