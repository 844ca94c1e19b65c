"""Nodes that aren't alike: an error for other versions, one warning for other processors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from nki_dist.core_actor import fingerprint, members
from nki_dist.core_actor.members import Member, compare, otherwise, require_versions
from nki_dist.errors import ClusterWarning, LaunchError
from tests.programs import said

SAYS = "from nki_dist.linking.blas import features, kernels; print(kernels(), features())"


def products_with(**settings: str) -> str:
    return said("-W", "ignore", "-c", SAYS, **settings).strip()


def test_a_process_says_which_kernels_it_has() -> None:
    old, new = (products_with(OPENBLAS_CORETYPE=name) for name in ("Nehalem", "Haswell"))
    if "openblas" not in old:
        pytest.skip("NumPy has another BLAS")
    assert "Nehalem" in old and "Haswell" in new
    members = [Member(1, "aa", new), Member(2, "aa", new), Member(3, "bb", old)]
    message = str(otherwise(members))
    assert f"{new} on 1 of them: aa" in message and f"{old} on 1 of them: bb" in message
    assert "OPENBLAS_CORETYPE" in message


def test_a_process_says_for_which_processor_numpy_has_code() -> None:
    math = np._core._multiarray_umath  # type: ignore[attr-defined]
    used = [name for name in math.__cpu_dispatch__ if math.__cpu_features__[name]]
    if not used:
        pytest.skip("this processor has nothing that NumPy has code for")
    with_all, with_less = products_with(), products_with(NPY_DISABLE_CPU_FEATURES=" ".join(used))
    assert with_all.endswith("NumPy for " + " ".join(used))
    assert with_less.endswith("NumPy for any processor")
    message = str(otherwise([Member(1, "aa", with_all), Member(2, "bb", with_less)]))
    assert with_less + " on 1 of them: bb" in message and "NPY_DISABLE_CPU_FEATURES" in message


def test_other_versions_are_an_error_that_names_node_and_both(monkeypatch) -> None:
    monkeypatch.setattr(members, "title", lambda node: f"Ray node {node} (10.0.0.9)")
    here = fingerprint.imported()
    there = {**fingerprint.versions(), "NumPy": "1.2.3"}
    equal = [Member(1, "aa", "", here), Member(2, "bb", "", fingerprint.versions())]
    require_versions(equal)
    with pytest.raises(LaunchError) as caught:
        require_versions([*equal, Member(3, "cc", "", there)])
    assert caught.value.code == "nodes-differ"
    text = f"Ray node cc (10.0.0.9) has NumPy: 1.2.3 there, {np.__version__} here\n"
    assert text in str(caught.value) and "runtime_env" in str(caught.value)
    assert "aa" not in str(caught.value) and "bb" not in str(caught.value)


def test_another_state_of_the_package_is_another_version(monkeypatch) -> None:
    monkeypatch.setattr(members, "title", str)
    edited = {**fingerprint.versions(), fingerprint.FILES: "0123456789ab"}
    with pytest.raises(LaunchError, match="files of nki_dist: 0123456789ab there, "):
        require_versions([Member(1, "aa", "", edited)])
    newer = {**edited, "nki_dist": "97.5.3"}
    with pytest.raises(LaunchError, match=r"has nki_dist: 97.5.3 there, .* here\n") as caught:
        require_versions([Member(1, "aa", "", newer)])
    assert "files of" not in str(caught.value)


def test_what_another_version_tells_is_read_all_the_same(monkeypatch) -> None:
    monkeypatch.setattr(members, "title", str)
    told = {"pid": 5, "node": "aa", "products": "b", "since": "a later version"}
    with pytest.raises(LaunchError, match="nki_dist: a version that tells nothing there"):
        require_versions([Member.of(told)])


def test_nodes_that_agree_are_not_told_of() -> None:
    assert otherwise([Member(n, f"node {n % 3}", "openblas 1 (Zen)") for n in range(9)]) is None


def test_it_is_told_once_and_is_short() -> None:
    members = [Member(n, f"node {n:04}", f"openblas 1 ({'AB'[n % 2]})") for n in range(1000)]
    with pytest.warns(ClusterWarning, match="and 492 more") as given:
        told = compare(members, "")
    assert len(given) == 1 and len(str(given[0].message).splitlines()) < 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare(members, told) == told
