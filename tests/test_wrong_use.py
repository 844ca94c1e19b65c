"""Uses that Python lets pass and that would end in silence, or inside the package."""

from __future__ import annotations

import os
import stat
import threading

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import CompileError, LaunchError, NkiValidationError

X = np.ones((2, 3), np.float32)


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


# ---- branches on arguments ----------------------------------------------------------------------


@nki.jit
def doubled_if(x, flag):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.load(x)) if flag else nl.load(x))
    return out


@nki.jit
def with_scale(x, scale=None):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0) if scale else nl.load(x))
    return out


@pytest.mark.parametrize("host", [nki.simulate, nki.debug])
@pytest.mark.parametrize("flag", [np.zeros((1, 1), np.int32), np.array(0)])
def test_a_flag_in_an_array_is_not_whether_it_was_passed(host, flag):
    with pytest.raises(NkiValidationError, match=r"can't branch on the tensor flag.*is not None"):
        host(doubled_if)(X, flag)


def test_an_optional_argument_of_one_element_may_be_asked_for():
    assert nki.simulate(with_scale)(X, np.zeros((1, 1), np.float32))[0, 0] == 2.0
    assert nki.simulate(with_scale)(X)[0, 0] == 1.0


# ---- rows chosen by floats ----------------------------------------------------------------------


@nki.jit
def rows_of(table, ids):
    out = nl.ndarray((ids.shape[0], table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    chosen = nl.ndarray(out.shape, dtype=table.dtype, buffer=nl.sbuf)
    pattern = [[table.shape[1], ids.shape[0]], [1, table.shape[1]]]
    nisa.dma_copy(dst=chosen, src=table.ap(pattern, vector_offset=nl.load(ids), indirect_dim=0))
    nl.store(out, chosen)
    return out


def test_rows_are_chosen_by_integers_only():
    table = np.arange(2000, dtype=np.float32).reshape(1000, 2)
    ids = np.array([[257], [999]], np.int32)
    np.testing.assert_array_equal(nki.simulate(rows_of)(table, ids), table[ids[:, 0]])
    for dtype in (np.float32, ml_dtypes.bfloat16):
        with pytest.raises(NkiValidationError, match=r"vector offset has dtype .*integers"):
            nki.simulate(rows_of)(table, ids.astype(dtype))


# ---- what launches are given --------------------------------------------------------------------


@pytest.mark.parametrize("host", [nki.simulate, nki.debug, nki.record, nki.profile])
def test_a_spec_has_no_contents_to_run_with(host):
    with pytest.raises(LaunchError, match=r"x is a TensorSpec.*nki.estimate"):
        host(copied)(nki.TensorSpec((2, 3), nl.float32))


@pytest.mark.parametrize("value", [len, int])
def test_kernels_are_functions_of_python(value):
    with pytest.raises(LaunchError, match="a kernel is a function, got"):
        nki.simulate(value)


@pytest.mark.parametrize("packing", [0, -3, 1.5, "x", True])
def test_packings_are_checked_when_a_world_is_made(packing):
    with pytest.raises(LaunchError, match=r"cores_per_actor=.*allowed: 'auto' or a positive int"):
        nki.World(ranks=2, host="inprocess", cores_per_actor=packing)


@pytest.mark.parametrize("body", [3, lambda: None, lambda i, j: None])
def test_bodies_of_loops_take_one_value(body):
    def kernel(x):
        nl.fori_loop(0, 2, body)
        return copied.fn(x)

    with pytest.raises(CompileError, match=r"the body of fori_loop is .*one parameter"):
        nki.simulate(kernel)(X)


# ---- questions to records -----------------------------------------------------------------------


def test_an_index_is_one_number_for_each_dimension():
    record = nki.record(copied)(X)
    for index in (1, (0,), (0, 3), (0, 1.5), "01"):
        with pytest.raises(LaunchError, match=r"the output has shape \(2, 3\)") as caught:
            record.origin(0, index)
        assert "(0, 0)" in (caught.value.hint or "")
    assert record.origin(0, [1, -1]).value == 1.0


# ---- files --------------------------------------------------------------------------------------


def test_saving_writes_to_what_is_no_file(tmp_path):
    compiled = copied.compile(X)
    compiled.save(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    compiled.save(tmp_path / "pipe")
    reader.join(20)
    assert found == [(tmp_path / "plain").read_bytes()]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_saving_keeps_links_and_modes(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    copied.compile(X).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert Compiled.load(tmp_path / "file").kernel == "copied"
