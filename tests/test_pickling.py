"""Kernels are pickled as functions are: by module and qualified name."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from ray import cloudpickle

import nki_dist as nki
from nki_dist.errors import LaunchError
from tests import pickled_kernels as K
from tests.programs import python

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def again(kernel, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(kernel, protocol))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_kernel_comes_back_with_its_grid_and_settings(protocol):
    kernel = again(K.scaled[2], protocol)
    assert kernel.fn is K.scaled.fn and kernel.grid == 2 and repr(kernel) == repr(K.scaled[2])
    assert kernel.__doc__ == K.scaled.__doc__ and kernel.__name__ == "scaled"
    here = again(nki.simulate(K.scaled[2], check="strict"), protocol)
    assert np.array_equal(here(X), 2 * X)
    assert here.checks == nki.simulate(K.scaled, check="strict").checks
    assert again(K.on_trn3, protocol).platform == "trn3"
    run = again(nki.profile(K.scaled, host="inprocess", schedule="program"), protocol)(X)
    assert np.array_equal(run.outputs, 2 * X) and run.profile.total_us > 0


def test_a_pickle_holds_a_name_and_no_code():
    data = pickle.dumps(K.scaled[2])
    assert b"tests.pickled_kernels" in data and len(data) < 600


def test_other_kinds_of_kernels():
    assert np.array_equal(nki.simulate(again(K.jitted))(X), X + 1)
    bound = again(nki.simulate(K.Layer(5.0).forward)[2])
    assert bound.grid == 2 and np.array_equal(bound(X), 5 * X)
    assert np.array_equal(nki.simulate(again(K.Layer.doubled))(X), 2 * X)
    tuned = again(nki.simulate(K.tuned))
    assert np.array_equal(tuned(X), 3 * X) and tuned.best_config == {"by": 3.0}
    ordered = K.jitted.with_schedule([("add", "fill")])[2]
    assert again(ordered).grid == 2
    assert again(ordered)._scheduled[1] == (("add", ("fill",)),)
    assert np.array_equal(nki.simulate(again(ordered))(X), X + 1)


def test_edges_of_a_schedule_are_kept():
    with pytest.raises(nki.errors.NkiError, match="nothing_like_it"):
        nki.simulate(again(K.jitted.with_schedule([("add", "nothing_like_it")])))(X)


def test_another_process_runs_it():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert np.array_equal(pool.submit(nki.simulate(K.scaled[2]), X).result(), 2 * X)


def test_kernels_of_main_in_another_process(tmp_path: Path):
    """A script's kernels, which its children find by running it as a module."""
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, numpy as np, nki_dist as nki, nki_dist.language as nl\n"
        "@nki.jit\n"
        "def same(x):\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x))\n"
        "    return out\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(nki.simulate(same), [np.full((2, 3), 7.0, np.float32)]).sum())\n"
    )
    done = python(script)
    assert done.stdout == "42.0\n", done.stderr


def test_local_kernels_say_why_not_and_where_they_are():
    with pytest.raises(LaunchError, match="'kernel' can't be pickled: it is defined") as e:
        pickle.dumps(K.local()[2])
    assert e.value.code == "kernel-pickle" and "pickled_kernels.py:" in e.value.location
    with pytest.raises(LaunchError, match=r"pickled_kernels.shadowed is something else"):
        pickle.dumps({"a list with": [K.hidden]})
    with pytest.raises(LaunchError, match="lambda"):
        pickle.dumps(nki.jit(lambda x: x))


def test_cloudpickle_still_takes_local_kernels():
    """Ray's: what a task is called with may be defined anywhere."""
    kernel = pickle.loads(cloudpickle.dumps({"kernel": K.local()[2]}))["kernel"]
    assert kernel.grid == 2 and np.array_equal(nki.simulate(kernel)(X), 2 * X)


def test_copies_of_local_kernels():
    kernel = K.local()[2]
    for copied in (copy.copy(kernel), copy.deepcopy([kernel])[0]):
        assert copied is not kernel and copied.fn is kernel.fn and copied.grid == 2
