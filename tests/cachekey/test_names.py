"""Names that aren't plain text: of keywords, of modules, of whatever a kernel reads."""

from __future__ import annotations

import enum
import types

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes import float32
from nki_dist.launcher.cachekey import Fingerprinter, Unprovable
from nki_dist.launcher.session import CompileCache, session
from nki_dist.program import TensorSignature
from tests.cachekey.kernels import key_of, namespace


class Keyword(str, enum.Enum):
    x = "x"


class Text(str):
    pass


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


@pytest.mark.parametrize("keyword", [Keyword.x, Text("x")], ids=["enum", "subclass"])
def test_keywords_derived_from_text(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session(), "cache", CompileCache())
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    for _ in range(2):
        np.testing.assert_array_equal(nki.simulate(copy)(**{keyword: x}), x)
    assert len(session().cache._cache) == 1


def test_names_of_tensors_count(keys: Fingerprinter) -> None:
    """Messages have them, and a kernel sees the keyword itself."""
    kernel = namespace("def kernel(**given): return given")["kernel"]
    names = ("x", "y", Text("x"), Keyword.x)
    found = {key_of(keys, kernel, TensorSignature(0, (3, 5), float32, name)) for name in names}
    assert len(found) == len(names)


def test_a_name_that_cannot_be_written_down_has_no_key(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x.__name__")["kernel"]
    with pytest.raises(Unprovable, match="can't be written down: unmarshallable object"):
        keys.fingerprint(kernel, [types.ModuleType(Text("itertools"))])
