"""Whatever a kernel reaches, however it reaches it: a change gives another key, or none.

The values are arbitrary trees of plain values. A change puts another tree in the place of one, or
changes a list or dict somewhere inside it; undoing it must give the old key again.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nki_dist.launcher.cachekey import Fingerprinter, Unprovable
from tests.cachekey.kernels import namespace

# How a kernel reaches VALUE, and the statement that replaces it.
PLACES = {
    "global": ("T = VALUE\ndef kernel(x): return T", "T = VALUE"),
    "global of a helper": (
        "T = VALUE\ndef helper(): return T\ndef kernel(x): return helper()",
        "T = VALUE",
    ),
    "global of a lambda in a comprehension": (
        "T = VALUE\ndef kernel(x): return [(lambda: T)() for _ in x]",
        "T = VALUE",
    ),
    "global of a class body": (
        "T = VALUE\ndef kernel(x):\n    class Inner:\n        held = T\n    return Inner.held",
        "T = VALUE",
    ),
    "global of a method": (
        "T = VALUE\nclass C:\n    def get(self): return T\nC0 = C()\n"
        "def kernel(x): return C0.get()",
        "T = VALUE",
    ),
    "global of a property": (
        "T = VALUE\nclass C:\n    @property\n    def held(self): return T\nC0 = C()\n"
        "def kernel(x): return C0.held",
        "T = VALUE",
    ),
    "global of a decorator's wrapper": (
        "import functools\nT = VALUE\ndef deco(f):\n    @functools.wraps(f)\n"
        "    def wrapper(x): return f(x), T\n    return wrapper\n"
        "@deco\ndef kernel(x): return x",
        "T = VALUE",
    ),
    "captured variable": (
        "def make(t):\n    def kernel(x): return t\n    return kernel\nkernel = make(VALUE)",
        "kernel.__closure__[0].cell_contents = VALUE",
    ),
    "captured by a captured function": (
        "def make(t):\n    def inner(): return t\n    def kernel(x): return inner()\n"
        "    return kernel, inner\nkernel, inner = make(VALUE)",
        "inner.__closure__[0].cell_contents = VALUE",
    ),
    "default": ("def kernel(x, t=VALUE): return t", "kernel.__defaults__ = (VALUE,)"),
    "keyword default": (
        "def kernel(x, *, t=VALUE): return t",
        "kernel.__kwdefaults__['t'] = VALUE",
    ),
    "default of a nested helper": (
        "def helper(t=VALUE): return t\nTABLE = [{'f': helper}]\n"
        "def kernel(x): return TABLE[0]['f']()",
        "helper.__defaults__ = (VALUE,)",
    ),
    "attribute of a function": (
        "def kernel(x): return kernel.held\nkernel.held = VALUE",
        "kernel.held = VALUE",
    ),
    "attribute of an object": (
        "class C: pass\nC0 = C()\nC0.held = VALUE\ndef kernel(x): return C0.held",
        "C0.held = VALUE",
    ),
    "attribute of an object in an object": (
        "class C: pass\nC0, C1 = C(), C()\nC0.held, C1.list = VALUE, [C0]\n"
        "def kernel(x): return C1.list[0].held",
        "C0.held = VALUE",
    ),
    "slot": (
        "class C: __slots__ = ('held',)\nC0 = C()\nC0.held = VALUE\ndef kernel(x): return C0.held",
        "C0.held = VALUE",
    ),
    "attribute of a dict's subclass": (
        "class C(dict): pass\nC0 = C(a=1)\nC0.held = VALUE\ndef kernel(x): return C0.held",
        "C0.held = VALUE",
    ),
    "item of a dict's subclass": (
        "class C(dict):\n    def __iter__(self): return iter(())\n    def keys(self): return ()\n"
        "    def values(self): return ()\n    def __len__(self): return 0\n"
        "C0 = C(a=VALUE)\ndef kernel(x): return C0['a']",
        "C0['a'] = VALUE",
    ),
    "item of a list's subclass": (
        "class C(list):\n    def __iter__(self): return iter(())\n    def __len__(self): return 0\n"
        "C0 = C([VALUE])\ndef kernel(x): return C0[0]",
        "C0[0] = VALUE",
    ),
    "attribute of a class": (
        "class C: held = VALUE\ndef kernel(x): return C.held",
        "C.held = VALUE",
    ),
    "attribute of a base class": (
        "class B: held = VALUE\nclass C(B): pass\nC0 = C()\ndef kernel(x): return C0.held",
        "B.held = VALUE",
    ),
    "attribute of a metaclass": (
        "class M(type): held = VALUE\nclass C(metaclass=M): pass\ndef kernel(x): return C.held",
        "M.held = VALUE",
    ),
    "value of an enum's member": (
        "import enum\nclass E(enum.Enum): A = 1\nE.A.held = VALUE\ndef kernel(x): return E.A.held",
        "E.A.held = VALUE",
    ),
    "list element": ("L = [1, VALUE]\ndef kernel(x): return L[1]", "L[1] = VALUE"),
    "dict value": ("D = {'a': VALUE}\ndef kernel(x): return D['a']", "D['a'] = VALUE"),
    "value of a defaultdict": (
        "import collections\nD = collections.defaultdict(int, a=VALUE)\n"
        "def kernel(x): return D['a']",
        "D['a'] = VALUE",
    ),
    "deque element": (
        "import collections\nL = collections.deque([VALUE])\ndef kernel(x): return L[0]",
        "L[0] = VALUE",
    ),
    "partial's keyword": (
        "import functools\ndef helper(t): return t\nP = functools.partial(helper, t=VALUE)\n"
        "def kernel(x): return P()",
        "P.keywords['t'] = VALUE",
    ),
    "attribute of a module": (
        "import cachekey_user as m\nm.held = VALUE\ndef kernel(x): return m.held",
        "m.held = VALUE",
    ),
    "attribute of a module imported by the kernel": (
        "import cachekey_user as m\nm.held = VALUE\n"
        "def kernel(x):\n    import cachekey_user as n\n    return n.held",
        "m.held = VALUE",
    ),
    "imported from a module by the kernel": (
        "import cachekey_user as m\nm.held = VALUE\n"
        "def kernel(x):\n    if x:\n        from cachekey_user import held\n"
        "    else:\n        from cachekey_user import held\n    return held",
        "m.held = VALUE",
    ),
    "attribute of a module in a list": (
        "import cachekey_user as m\nm.held = VALUE\nMODULES = [m]\n"
        "def kernel(x): return MODULES[0].held",
        "m.held = VALUE",
    ),
    "what makes up attributes of a module": (
        "import cachekey_user as m\nT = VALUE\ndef made(name): return T\nm.__getattr__ = made\n"
        "def kernel(x): return m.missing",
        "T = VALUE",
    ),
    "what a memoised helper reads": (
        "import functools\nT = VALUE\n@functools.lru_cache\ndef helper(): return T\nhelper()\n"
        "def kernel(x): return helper()",
        "T = VALUE",
    ),
}

PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(-300, 300), st.floats(), st.complex_numbers()),
    *(st.text(max_size=3), st.binary(max_size=3), st.sampled_from([0, 0.0, -0.0, False, 1, True])),
)
# Sets of one element, because the order of more counts, and copying may change it.
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        *(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
        *(st.tuples(inner, inner), st.frozensets(PLAIN, max_size=1)),
    ),
    max_leaves=6,
)
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True, scope="module")
def user_module() -> Iterator[None]:
    sys.modules["cachekey_user"] = types.ModuleType("cachekey_user")
    yield
    del sys.modules["cachekey_user"]


def defined(place: str, value: Any) -> dict[str, Any]:
    return namespace(PLACES[place][0], VALUE=value)


def key(keys: Fingerprinter, names: dict[str, Any]) -> Any:
    """The key, the same with and without memory; None without one."""
    with contextlib.suppress(Unprovable):
        found = keys.fingerprint(names["kernel"], ())
        assert Fingerprinter().fingerprint(names["kernel"], ()) == found
        return found
    return None


def mutable(value: Any) -> list[Any]:
    """The lists and dicts in a tree."""
    inner = value.values() if isinstance(value, dict) else value
    found = [each for part in inner for each in mutable(part)] if _holds(value) else []
    return [value, *found] if isinstance(value, (list, dict)) else found


def _holds(value: Any) -> bool:
    return isinstance(value, (list, dict, tuple))


@pytest.mark.parametrize("place", PLACES)
@given(first=VALUES, second=VALUES)
@FEW
def test_another_value_gives_another_key(place: str, first: Any, second: Any) -> None:
    assume(repr(first) != repr(second))
    keys, names = Fingerprinter(), defined(place, first)
    before = key(keys, names)
    assert before is not None
    for value, same in ((second, False), (copy.deepcopy(first), True)):
        names["VALUE"] = value
        exec(PLACES[place][1], names)
        found = key(keys, names)
        assert found is None or (found == before) == same
        assert found is not None or place == "what a memoised helper reads"


@pytest.mark.parametrize("place", PLACES)
@given(value=st.lists(VALUES, max_size=2), data=st.data())
@FEW
def test_a_change_inside_gives_another_key(place: str, value: Any, data: st.DataObject) -> None:
    inside = data.draw(st.sampled_from(mutable(value)))
    keys, names = Fingerprinter(), defined(place, value)
    before = key(keys, names)
    if isinstance(inside, list):
        inside.append(None)
    else:
        inside["changed"] = None
    after = key(keys, names)
    assert before is not None and after != before
    inside.pop() if isinstance(inside, list) else inside.popitem()
    assert key(keys, names) in (before, None)


@given(first=VALUES, second=VALUES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_arguments_are_told_apart(first: Any, second: Any) -> None:
    keys, kernel = Fingerprinter(), namespace("def kernel(x): return x")["kernel"]
    found = [keys.fingerprint(kernel, value) for value in (first, second, copy.deepcopy(first))]
    assert (found[0] == found[1]) <= (repr(first) == repr(second))
    assert found[0] == found[2]
