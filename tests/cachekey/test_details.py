"""What objects differ in although they look alike: metadata, arguments of aliases, parts put in."""

from __future__ import annotations

import pytest

from nki_dist.cachekey import Fingerprinter
from tests.cachekey.kernels import key_of, namespace


@pytest.mark.parametrize(
    "body",
    [
        "class C:\n    @property\n    def __name__(self): raise ValueError('unnamed')\nC0 = C()",
        "class C:\n    def __getattr__(self, name): return vars(self)['held_' + name]\nC0 = C()",
    ],
    ids=["property", "getattr"],
)
def test_objects_that_do_not_tell_their_names(keys: Fingerprinter, body: str) -> None:
    names = namespace(f"{body}\nC0.held = 1\ndef kernel(x): return C0.held")
    before = key_of(keys, names["kernel"]), key_of(keys, names["kernel"], names["C0"])
    names["C0"].held = 2
    after = key_of(keys, names["kernel"]), key_of(keys, names["kernel"], names["C0"])
    assert len({*before, *after}) == 4
