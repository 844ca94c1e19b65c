"""What the key of a kernel is put together from: reads of code objects, and snapshots."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import pytest

import nki_dist.isa as nisa
from nki_dist.launcher.cachekey import Fingerprinter, Unprovable, reads
from nki_dist.launcher.cachekey.reads import reads_of
from tests.cachekey.kernels import namespace


def test_snapshots_are_bounded() -> None:
    keys = Fingerprinter(snapshots=3)
    kernels = [namespace(f"def kernel(x): return {n}")["kernel"] for n in range(8)]
    first = [keys.fingerprint(each, ()) for each in kernels]
    assert first == [keys.fingerprint(each, ()) for each in kernels]
    assert len(keys._snapshots) == 3


@pytest.mark.parametrize("body", ["pass", "__slots__ = ('held', '__weakref__')"])
def test_classes_die_with_their_kernels(body: str) -> None:
    keys = Fingerprinter(snapshots=1)
    source = f"class C: {body}\nC0 = C()\nC0.held = 1\ndef kernel(x): return C0.held"
    names = namespace(source)
    assert keys.fingerprint(names["kernel"], ()) != keys.fingerprint(names["kernel"], names["C"]())
    gone = weakref.ref(names["C"])
    names.clear()
    keys.fingerprint(namespace("def kernel(x): return x")["kernel"], ())
    gc.collect()
    assert gone() is None


def test_plan_names_every_read() -> None:
    def sample(k: Any) -> Any:
        import collections.abc as abc

        first, second = k, abc.Sized
        return [settings.tile.SIZE + first for _ in second], lambda: other + k  # noqa: F821

    chains = {(each.root, each.name, each.attributes) for each in reads_of(sample.__code__).chains}
    assert ("import", "collections", ("abc", "Sized")) in chains
    assert ("global", "settings", ("tile", "SIZE")) in chains
    assert ("global", "other", ()) in chains


def test_a_local_may_be_one_of_several_imports() -> None:
    def sample(x: Any) -> Any:
        if x:
            import collections as module
        else:
            import dataclasses as module  # type: ignore[no-redef]
        return module.x.y

    chains = {(each.root, each.name, each.attributes) for each in reads_of(sample.__code__).chains}
    assert {("import", "collections", ("x", "y")), ("import", "dataclasses", ("x", "y"))} == chains


def test_a_replaced_instruction_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions are taken by the name that their module holds them under."""
    keys, names = Fingerprinter(), namespace("def kernel(x): return nisa.dma_copy(x)", nisa=nisa)
    before = keys.fingerprint(names["kernel"], ())
    monkeypatch.setattr(nisa, "dma_copy", nisa.dma_transpose)
    other = keys.fingerprint(names["kernel"], ())
    assert other == Fingerprinter().fingerprint(names["kernel"], ()) != before
    monkeypatch.setattr(nisa, "dma_copy", lambda x: x)
    assert keys.fingerprint(names["kernel"], ()) not in (before, other)
    monkeypatch.undo()
    assert keys.fingerprint(names["kernel"], ()) == before


def test_code_that_proves_nothing_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, read = Fingerprinter(), []

    def counted(code: types.CodeType) -> Any:
        read.append(code.co_name)
        return reads_of(code)

    monkeypatch.setattr(reads, "reads_of", counted)
    kernel = namespace("def kernel(x):\n    global COUNT\n    COUNT = 1")["kernel"]
    for _ in range(3):
        with pytest.raises(Unprovable, match="kernel: variable COUNT is assigned to"):
            keys.fingerprint(kernel, ())
    assert read == ["kernel"]
