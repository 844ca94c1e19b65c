"""Variables of AWS's tools, with AWS's meaning."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

X = np.zeros((1, 1), np.float32)


@nki.jit
def described(x):
    """Cores of the launch, and the generation; 0 cores without a grid is one."""
    out = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(t[:, 0:1], nl.num_programs(0) if nl.program_ndim() else 1)
    nisa.memset(t[:, 1:2], int(nisa.get_nc_version()))
    nisa.dma_copy(out, t)
    return out


@nki.jit
def cores_meet(x):
    """Whether there are two cores: each takes what the other one has."""
    out = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    core, cores = nl.program_id(0), nl.num_programs(0)
    mine = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(mine, float(core + 1))
    if cores == 2:
        theirs = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.sendrecv(mine, theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
        mine = theirs
    for row in range(core, 2, cores):
        nisa.dma_copy(out[row : row + 1], mine)
    return out


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")
    for name in ("NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_LOGICAL_NC_CONFIG", "NKI_NC_VERSION"):
        monkeypatch.delenv(name, raising=False)


def test_lnc_counts_for_launches_without_a_grid(monkeypatch):
    np.testing.assert_array_equal(cores_meet(X), [[1], [1]])
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    np.testing.assert_array_equal(cores_meet(X), [[2], [1]])
    np.testing.assert_array_equal(nki.simulate(cores_meet)(X), [[2], [1]])
    np.testing.assert_array_equal(cores_meet[1](X), [[1], [1]])


@pytest.mark.parametrize(("value", "platform", "most"), [("2", "trn1", 1), ("0", "trn2", 2)])
def test_an_lnc_that_the_platform_lacks_is_refused(value, platform, most, monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", value)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", platform)
    text = f"NEURON_LOGICAL_NC_CONFIG='{value}'; allowed: 1 to {most}"
    with pytest.raises(errors.LaunchError, match=text):
        described(X)


@pytest.mark.parametrize(("gen", "version"), [("gen2", 2), ("gen3", 3), ("gen4", 4)])
def test_generation_of_test_harnesses(gen, version, monkeypatch):
    monkeypatch.setenv("NKI_NC_VERSION", gen)
    assert nki.cpu_simulate(described)(X).tolist() == [[1, version]]
    assert described(X).tolist() == [[1, version]]
    # The target for compilation is stronger where no harness is in play.
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert described(X).tolist() == [[1, 2]]


def test_the_simulator_variable_means_this_process(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.delenv("NKI_DIST_HOST")
    assert nki.World().host_name == "inprocess"
    monkeypatch.setenv("NKI_DIST_HOST", "ray")
    assert nki.World().host_name == "ray"
    monkeypatch.delenv("NKI_DIST_HOST")
    monkeypatch.setenv("NKI_SIMULATOR", "0")
    assert nki.World().host_name == "ray"
    monkeypatch.setenv("NKI_SIMULATOR", "yes")
    with pytest.raises(errors.LaunchError, match="NKI_SIMULATOR='yes'; allowed: 0, 1"):
        nki.World()
