"""Nodes whose BLAS has other kernels: one warning that names both, and what to set."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from nki_dist.core_actor.members import Member, compare, otherwise
from nki_dist.errors import ClusterWarning

SAYS = "from nki_dist.runtime.blas import kernels; print(kernels())"


def kernels_with(core_type: str) -> str:
    environment = {**os.environ, "OPENBLAS_CORETYPE": core_type}
    command = [sys.executable, "-c", SAYS]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_process_says_which_kernels_it_has() -> None:
    old, new = kernels_with("Nehalem"), kernels_with("Haswell")
    if "openblas" not in old:
        pytest.skip("NumPy has another BLAS")
    assert "Nehalem" in old and "Haswell" in new
    members = [Member(1, "aa", new), Member(2, "aa", new), Member(3, "bb", old)]
    message = str(otherwise(members))
    assert f"{new} on 1 of them: aa" in message and f"{old} on 1 of them: bb" in message
    assert "OPENBLAS_CORETYPE" in message


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
