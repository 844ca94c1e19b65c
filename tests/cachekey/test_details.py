"""What objects differ in although they look alike: metadata, arguments of aliases, parts put in."""

from __future__ import annotations

import sys
import types

import pytest

from nki_dist.launcher.cachekey import Fingerprinter, Unprovable
from tests.cachekey.kernels import key_of, namespace

# What a kernel reads, and a statement after which it reads something else.
DETAILS = {
    "metadata of a field": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n"
        "    a: int = dataclasses.field(default=1, metadata={'tile': 1})\n"
        "def kernel(x): return C",
        "C.__dataclass_fields__['a'].metadata = {'tile': 2}",
    ),
    "default of a field": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n"
        "def kernel(x): return dataclasses.fields(C)[0].default",
        "C.__dataclass_fields__['a'].default = 2",
    ),
    "whether a field is shown": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n"
        "def kernel(x): return dataclasses.fields(C)[0].repr",
        "C.__dataclass_fields__['a'].repr = False",
    ),
    "function of a cached property": (
        "import functools\nclass C:\n    @functools.cached_property\n    def a(self): return 1\n"
        "def kernel(x): return C().a",
        "vars(C)['a'].func = lambda self: 2",
    ),
    "state of a partial": (
        "import functools\nP = functools.partial(max, 1)\ndef kernel(x): return P",
        "P.__setstate__((max, (2,), {}, {}))",
    ),
    "argument of an alias": (
        "import enum\nA = list[enum.Enum('E', {'a': 1})]\ndef kernel(x): return A",
        "A = list[enum.Enum('E', {'a': 2})]",
    ),
    "what is an alias of": (
        "class L(list): pass\nA = types.GenericAlias(L, (int,))\ndef kernel(x): return A",
        "class L(list): held = 1\nA = types.GenericAlias(L, (int,))",
    ),
    "member of a union": (
        "import enum\nA = int | enum.Enum('E', {'a': 1})\ndef kernel(x): return A",
        "A = int | enum.Enum('E', {'a': 2})",
    ),
    "argument of typing's alias": (
        "import enum, typing\nA = typing.List[enum.Enum('E', {'a': 1})]\ndef kernel(x): return A",
        "A = typing.List[enum.Enum('E', {'a': 2})]",
    ),
    "type of a literal": (
        "import typing\nA = typing.Literal[1]\ndef kernel(x): return A",
        "A = typing.Literal[True]",
    ),
    "new type": (
        "import typing\nA = typing.NewType('N', int)\ndef kernel(x): return A",
        "A = typing.NewType('N', float)",
    ),
    "special name in a module": (
        "def read(m): return m.__tile__\ndef kernel(x): return read(module)",
        "module.__tile__ = 2",
    ),
}


@pytest.mark.parametrize("detail", DETAILS)
def test_details_count(keys: Fingerprinter, detail: str) -> None:
    source, change = DETAILS[detail]
    names = namespace(source, types=types, module=types.ModuleType("cachekey_details"))
    before = key_of(keys, names["kernel"])
    exec(change, names)
    assert key_of(keys, names["kernel"]) != before


def test_bounds_of_type_variables(keys: Fingerprinter) -> None:
    """Newer interpreters keep them out of sight: no key."""
    source = "from typing import TypeVar\nT = TypeVar('T', bound=int)\ndef kernel(x): return T"
    names = namespace(source)
    if sys.version_info >= (3, 12):
        with pytest.raises(Unprovable, match="out of sight"):
            keys.fingerprint(names["kernel"], ())
        return
    before = key_of(keys, names["kernel"])
    exec("T = TypeVar('T', bound=float)", names)
    assert key_of(keys, names["kernel"]) != before


def test_forward_references_have_keys(keys: Fingerprinter) -> None:
    names = namespace("import typing\nA = typing.List['C']\ndef kernel(x): return A")
    before = key_of(keys, names["kernel"])
    exec("A = typing.List['D']", names)
    assert key_of(keys, names["kernel"]) != before


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
