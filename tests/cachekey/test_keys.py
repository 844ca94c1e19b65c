"""Compile-cache keys: every change that can reach a program changes the key, nothing else does."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nki_dist import dtypes
from nki_dist.cachekey import Fingerprinter, Unprovable
from nki_dist.cachekey.reads import reads_of

SOURCE = """
    import collections, dataclasses, enum, functools, math, os, random, sys, time
    import logging
    import numpy as np
    from typing import NamedTuple, Optional

    TILE = 128
    NEGATIVE = 0.0
    SIZES = [1, 2, [3, 4]]
    TABLE = {"a": 1, "b": {2}}
    ARRAY = np.arange(6, dtype=np.int16).reshape(2, 3)
    LOGGER = logging.getLogger("nki_dist.tests")
    ORDERED = collections.OrderedDict(x=1, y=2)

    class Mode(enum.Enum):
        FAST = "fast"
        SLOW = "slow"

    class Pair(NamedTuple):
        left: int
        right: Optional[int] = 7

    @dataclasses.dataclass(frozen=True)
    class Config:
        depth: int = 2
        widths: tuple = (1, 2)
        def area(self):
            return self.depth * TILE

    class Base:
        unit = 4
        def scale(self, x):
            return x * self.unit
        @property
        def twice(self):
            return 2 * self.unit

    class Slotted(Base):
        __slots__ = ("value", "later")
        def __init__(self, value):
            self.value = value

    CONFIG = Config()
    SLOTTED = Slotted(3)
    MODE = Mode.FAST

    def helper(x, factor=2, *, bias=1):
        return deeper(x) * factor + bias

    def deeper(x):
        return x + TILE if x else recursive(3)

    def recursive(n):
        return 1 if n == 0 else n * even(n - 1)

    def even(n):
        return recursive(n - 1) if n else 0

    @functools.lru_cache(maxsize=None)
    def memoised(n):
        return n * TILE

    bound = functools.partial(helper, factor=5)

    def make(scale, box):
        def closed(x):
            nonlocal_names = [scale * each for each in box]
            return nonlocal_names + [lambda: scale]
        return closed

    CLOSED = make(3, [1, 2])

    def kernel(x):
        LOGGER.debug("tracing")
        total = helper(x) + bound(x) + NEGATIVE + SIZES[0] + TABLE["a"] + ARRAY.sum()
        total += CONFIG.area() + SLOTTED.scale(2) + Pair(1).right + math.floor(np.float32(2.5))
        if MODE is Mode.FAST and ORDERED:
            total += memoised(4)
        print(total, file=sys.stderr)
        return [total for _ in range(3)], CLOSED(x), np.zeros_like(ARRAY)
"""


def namespace(source: str = SOURCE, name: str = "__main__", file: str = "kernel.py") -> dict:
    """What a script or a notebook cell defines, run the way an interpreter runs it."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(textwrap.dedent(source), file, "exec"), names)
    return names


@pytest.fixture(scope="module")
def keys() -> Fingerprinter:
    return Fingerprinter()


def key_of(keys: Fingerprinter, function: Any, values: Any = ()) -> Any:
    key = keys.fingerprint(function, values)
    assert key == Fingerprinter().fingerprint(function, values)  # warm and cold agree
    return key


def test_same_everything_has_the_same_key(keys: Fingerprinter) -> None:
    first, second = namespace(), namespace()
    key = key_of(keys, first["kernel"])
    assert key == key_of(keys, first["kernel"])
    assert key == key_of(keys, second["kernel"])
    assert hash(key) == hash(key_of(keys, second["kernel"]))


def _set(name: str, value: Any) -> Callable[[dict], None]:
    return lambda names: names.__setitem__(name, value)


def _run(statement: str) -> Callable[[dict], None]:
    return lambda names: exec(textwrap.dedent(statement), names)


CHANGES = {
    "global int": _set("TILE", 64),
    "global type": _set("TILE", 128.0),
    "bool for int": _run("SIZES[0] = True"),
    "sign of zero": _set("NEGATIVE", -0.0),
    "nan": _set("NEGATIVE", float("nan")),
    "list element": _run("SIZES[2][1] = 5"),
    "list length": _run("SIZES.append(0)"),
    "dict value": _run("TABLE['a'] = 2"),
    "dict order": _run("TABLE['a'] = TABLE.pop('a')"),
    "set in dict": _run("TABLE['b'].add(9)"),
    "ordered dict order": _run("ORDERED.move_to_end('x')"),
    "array element": _run("ARRAY[1, 2] = 77"),
    "array dtype": _run("ARRAY = ARRAY.astype(np.int32)"),
    "array strides": _run("ARRAY = np.asfortranarray(ARRAY)"),
    "enum member": _run("MODE = Mode.SLOW"),
    "enum value": _run("Mode.FAST._value_ = 'faster'"),
    "dataclass instance": _run("CONFIG = Config(3)"),
    "dataclass element type": _run("CONFIG = Config(2, (1, True))"),
    "frozen dataclass forced": _run("object.__setattr__(CONFIG, 'depth', 9)"),
    "slot": _run("SLOTTED.value = 4"),
    "slot filled": _run("SLOTTED.later = 4"),
    "inherited class attribute": _run("Base.unit = 5"),
    "overriding class attribute": _run("Slotted.unit = 5"),
    "bases": _run("class Other(Base): pass\nSLOTTED.__class__.__bases__ = (Other,)"),
    "monkeypatched method": _run("Config.area = lambda self: 1"),
    "method's code": _run("def f(self, x): return x\nBase.scale.__code__ = f.__code__"),
    "property": _run("Base.twice = property(lambda self: 3)"),
    "default": _run("helper.__defaults__ = (3,)"),
    "keyword default": _run("helper.__kwdefaults__['bias'] = 2"),
    "function attribute": _run("helper.flag = 1"),
    "helper redefined": _run("def deeper(x): return x - TILE"),
    "helper in a cycle": _run("def even(n): return recursive(n - 2)"),
    "helper removed": _run("del even"),
    "captured int": _run("CLOSED.__closure__[1].cell_contents = 4"),
    "captured list": _run("CLOSED.__closure__[0].cell_contents.append(4)"),
    "partial": _run("bound = functools.partial(helper, factor=6)"),
    "partial's keywords": _run("bound.keywords['factor'] = 8"),
    "namedtuple default": _run("Pair.__new__.__defaults__ = (8,)"),
    "builtin shadowed": _run("def range(n): return []"),
    "library function replaced": _run("class np2: pass\nmath = np2\nmath.floor = lambda x: 3"),
    "log level": _run("LOGGER.disabled = not LOGGER.disabled"),
    "memoised helper": _run("@functools.lru_cache(None)\ndef memoised(n): return n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(keys: Fingerprinter, change: str) -> None:
    names = namespace()
    before = key_of(keys, names["kernel"])
    CHANGES[change](names)
    assert key_of(keys, names["kernel"]) != before


def test_a_change_that_is_undone_has_the_old_key(keys: Fingerprinter) -> None:
    names = namespace()
    before = key_of(keys, names["kernel"])
    names["SIZES"][2].append(5)
    assert key_of(keys, names["kernel"]) != before
    names["SIZES"][2].pop()
    assert key_of(keys, names["kernel"]) == before


def test_what_the_kernel_does_not_read_does_not_count(keys: Fingerprinter) -> None:
    names = namespace()
    before = key_of(keys, names["kernel"])
    names["UNRELATED"] = object()
    names["make"] = None
    assert key_of(keys, names["kernel"]) == before


def test_same_name_and_other_body(keys: Fingerprinter) -> None:
    one = namespace("def kernel(x): return x + 1")["kernel"]
    two = namespace("def kernel(x): return x + 2")["kernel"]
    three = namespace("def kernel(x): return x + 1.0")["kernel"]
    again = namespace("def kernel(x): return x + 1")["kernel"]
    assert len({key_of(keys, each) for each in (one, two, three)}) == 3
    assert key_of(keys, one) == key_of(keys, again)


def test_source_lines_count(keys: Fingerprinter) -> None:
    """Programs carry them to error messages, so moved or renamed source is traced again."""
    one = namespace("def kernel(x):\n    return x")["kernel"]
    two = namespace("def kernel(x):\n    # why\n    return x")["kernel"]
    three = namespace("def kernel(x):\n    return x", file="other.py")["kernel"]
    assert len({key_of(keys, each) for each in (one, two, three)}) == 3


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A user's package with a settings module, imported from outside any site-packages."""
    folder = tmp_path / "fingerprint_pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import settings\nLEVEL = 1\n")
    (folder / "settings.py").write_text("TILE = 8\nUNUSED = 1\n\ndef twice(x):\n    return TILE\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("fingerprint_pkg")
    for name in [each for each in sys.modules if each.startswith("fingerprint_pkg")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "body",
    [
        "import fingerprint_pkg as p\ndef kernel(x): return p.settings.TILE",
        "from fingerprint_pkg import settings\ndef kernel(x): return settings.twice(x)",
        "def kernel(x):\n    from fingerprint_pkg.settings import TILE as T\n    return T",
        "def kernel(x):\n    import fingerprint_pkg.settings\n"
        "    return fingerprint_pkg.settings.TILE",
        "def kernel(x):\n    import fingerprint_pkg.settings as s\n    return s.TILE",
        "def kernel(x):\n    import fingerprint_pkg.settings as s\n    return lambda: s.TILE",
        "def kernel(x):\n    from .settings import TILE\n    return TILE",
        "from fingerprint_pkg import settings\ndef kernel(x): return getattr(settings, 'TILE')",
        "from fingerprint_pkg import settings\n"
        "def make(m):\n    def kernel(x): return m.TILE\n    return kernel\n"
        "kernel = make(settings)",
    ],
)
def test_module_attributes(keys: Fingerprinter, package: types.ModuleType, body: str) -> None:
    names = namespace(body)
    names["__package__"] = "fingerprint_pkg"
    before = key_of(keys, names["kernel"])
    package.settings.TILE = 9
    assert key_of(keys, names["kernel"]) != before


def test_unread_module_attribute_does_not_count(keys: Fingerprinter, package) -> None:
    kernel = namespace("import fingerprint_pkg as p\ndef kernel(x): return p.settings.TILE")
    before = key_of(keys, kernel["kernel"])
    package.settings.UNUSED = 2
    assert key_of(keys, kernel["kernel"]) == before


@pytest.mark.parametrize(
    "body",
    [
        "import time\ndef kernel(x): return time.time()",
        "from time import perf_counter as now\ndef kernel(x): return now()",
        "import random\ndef kernel(x): return random.random()",
        "from random import randint\ndef kernel(x): return randint(0, 3)",
        "import numpy as np\ndef kernel(x): return np.random.rand(3)",
        "import numpy as np\nrng = np.random.default_rng(0)\ndef kernel(x): return rng.normal()",
        "from numpy.random import rand\ndef kernel(x): return rand(2)",
        "def kernel(x):\n    import time\n    return time.time()",
        "def kernel(x):\n    import numpy as np\n    return np.random.rand()",
        "def kernel(x): return open('f').read()",
        "def kernel(x): return input()",
        "def kernel(x): breakpoint()",
        "def kernel(x): return eval('TILE')",
        "def kernel(x): return globals()['TILE']",
        "import os\ndef kernel(x): return os.listdir('.')",
        "import os\ndef kernel(x): return os.path.exists('.')",
        "import sys\ndef kernel(x): return sys.modules['a'].TILE",
        "import numpy as np\ndef kernel(x): return x(np)",
        "from pathlib import Path\ndef kernel(x): return Path('a').exists()",
        "import datetime\ndef kernel(x): return datetime.datetime.now()",
        "COUNT = 0\ndef kernel(x):\n    global COUNT\n    COUNT += 1",
        "import types\nC = types.SimpleNamespace(n=0)\ndef kernel(x): C.n = 1",
        "def make():\n    n = 0\n    def kernel(x):\n        nonlocal n\n        n += 1\n"
        "    return kernel\nkernel = make()",
        "import threading\nLOCK = threading.Lock()\ndef kernel(x): LOCK.acquire()",
        "STREAM = iter([1, 2])\ndef kernel(x): return next(STREAM)",
        "def gen():\n    yield 1\nG = gen()\ndef kernel(x): return next(G)",
        "import itertools\nIDS = itertools.count()\ndef kernel(x): return next(IDS)",
        "def kernel(x):\n    import not_imported_anywhere as n\n    return n.X",
        "import time\ndef helper(): return [time.time() for _ in range(2)]\n"
        "class K:\n    def run(self): return helper()\nk = K()\ndef kernel(x): return k.run()",
    ],
)
def test_unprovable_kernels_have_no_key(keys: Fingerprinter, body: str) -> None:
    kernel = namespace(body)["kernel"]
    for _ in range(2):
        with pytest.raises(Unprovable, match=r"\w"):
            keys.fingerprint(kernel, ())


@pytest.mark.parametrize(
    "body",
    [
        "import os\ndef kernel(x): return os.environ.get('NKI_DIST_TEST')",
        "from os import getenv\ndef kernel(x): return getenv('NKI_DIST_TEST')",
        "from os import environ as e\ndef kernel(x): return e['NKI_DIST_TEST']",
        "def kernel(x):\n    import os\n    return os.environ['NKI_DIST_TEST']",
    ],
)
def test_environment(keys: Fingerprinter, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = namespace(body)["kernel"]
    monkeypatch.setenv("NKI_DIST_TEST", "1")
    before = key_of(keys, kernel)
    monkeypatch.setenv("NKI_DIST_TEST", "2")
    assert key_of(keys, kernel) != before
    monkeypatch.setenv("NKI_DIST_TEST", "1")
    assert key_of(keys, kernel) == before


def test_pure_path_functions_are_allowed(keys: Fingerprinter) -> None:
    key_of(keys, namespace("import os\ndef kernel(x): return os.path.join('a', x)")["kernel"])


def test_memoised_helper_that_predates_a_change(keys: Fingerprinter) -> None:
    names = namespace(
        "import functools\nT = 1\n@functools.lru_cache\ndef helper(): return T\n"
        "def kernel(x): return helper()"
    )
    before = key_of(keys, names["kernel"])
    names["helper"]()
    assert key_of(keys, names["kernel"]) == before
    names["T"] = 2
    with pytest.raises(Unprovable, match="the cache of helper predates a change"):
        keys.fingerprint(names["kernel"], ())  # helper() still answers 1
    names["helper"].cache_clear()
    assert keys.fingerprint(names["kernel"], ()) != before


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Signature:
    shape: tuple[int, ...]
    dtype: Any


class Point(collections.namedtuple("Point", "x y")):
    pass


VALUES = [
    *(0, False, 0.0, -0.0, float("nan"), "0", b"0", None, 0j, -0j, ..., 1, True, 1.0, "1"),
    *([], (), {}, set(), frozenset(), [0], (0,), [[0]], [False], {0: 1}, {0: True}, {"0": 1}),
    *(np.int8(0), np.int16(0), np.float32(0), np.float32(-0.0), np.bool_(False)),
    *(np.dtype("int8"), np.dtype("int16"), np.int8, np.zeros(2, np.int8), np.zeros(2, np.int16)),
    *(np.zeros((1, 2), np.int8), np.zeros(0, np.int8), np.array(0, np.int8)),
    *(Color.RED, Color, Point(1, 2), (1, 2), Point(2, 1), Signature((1, 2), np.dtype("int8"))),
    *(Signature((1, 2), np.dtype("uint8")), Signature((1, True), np.dtype("int8"))),
    *(range(3), range(4), slice(1, 2), slice(1, 3), len, max, "len", np.floor),
    *(lambda: 1, lambda: 2, functools.partial(max, 1), functools.partial(max, 2)),
    *(collections.deque([1]), collections.deque([1], 3), collections.Counter("ab")),
    *(dtypes.uint32, dtypes.float8_e4m3fn_x4, dtypes.float32, dtypes.tfloat32),
    *(types.SimpleNamespace(a=1), collections.defaultdict(int), collections.defaultdict(list)),
]


def test_values_are_told_apart(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x")["kernel"]
    seen = {key_of(keys, kernel, {"x": value}): value for value in VALUES}
    assert len(seen) == len(VALUES)
    for value in VALUES:
        assert keys.fingerprint(kernel, {"x": value}) == keys.fingerprint(kernel, {"x": value})


def test_equal_values_have_equal_keys(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x")["kernel"]

    def arguments() -> Any:
        return [Signature((1, 2), np.dtype("int8")), {"a": [1.5, Point(1, 2)]}, Color.RED]

    assert key_of(keys, kernel, arguments()) == key_of(keys, kernel, arguments())


def test_sharing_and_cycles_in_values(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x")["kernel"]
    shared, loop = [1], [1]
    loop.append(loop)
    assert key_of(keys, kernel, [shared, shared]) != key_of(keys, kernel, [[1], [1]])
    assert key_of(keys, kernel, loop) != key_of(keys, kernel, [1, [1]])


def test_argument_that_is_a_global_differs_from_an_equal_one(keys: Fingerprinter) -> None:
    names = namespace("BOX = [1]\ndef kernel(x): return x is BOX")
    assert key_of(keys, names["kernel"], names["BOX"]) != key_of(keys, names["kernel"], [1])


def test_argument_of_a_class_that_was_redefined(keys: Fingerprinter) -> None:
    source = "class C: pass\ndef kernel(x): return isinstance(x, C)"
    names, twin = namespace(source), namespace(source)
    mine = key_of(keys, names["kernel"], names["C"]())
    assert mine != key_of(keys, names["kernel"], twin["C"]())


def test_function_arguments_follow_their_globals(keys: Fingerprinter) -> None:
    names = namespace("T = 1\ndef act(x): return x * T\ndef kernel(f): return f(1)")
    before = key_of(keys, names["kernel"], (names["act"],))
    names["T"] = 2
    assert key_of(keys, names["kernel"], (names["act"],)) != before


def test_methods_and_partials_as_kernels(keys: Fingerprinter) -> None:
    names = namespace("class K:\n    def __init__(self, n): self.n = n\n    def run(self): ...")
    one, two = names["K"](1), names["K"](2)
    assert key_of(keys, one.run) == key_of(keys, one.run) != key_of(keys, two.run)
    one.n = 5
    assert key_of(keys, one.run) != key_of(keys, names["K"](1).run)
    assert key_of(keys, functools.partial(one.run, 1)) != key_of(keys, functools.partial(one.run))


def test_compiled_function_objects(keys: Fingerprinter) -> None:
    """A user's own jit-like wrapper counts through what it holds."""
    source = """
        import functools
        class Jit:
            def __init__(self, fn, level): functools.update_wrapper(self, fn); self.level = level
            def __call__(self, *args): return self.__wrapped__(*args)
        T = 1
        def body(x): return T
        inner = Jit(body, 1)
        def kernel(x): return inner(x)
    """
    names = namespace(source)
    before = key_of(keys, names["kernel"])
    names["T"] = 2
    changed = key_of(keys, names["kernel"])
    names["inner"].level = 2
    assert len({before, changed, key_of(keys, names["kernel"])}) == 3


def test_standing_in_for_hidden_state(keys: Fingerprinter) -> None:
    source = """
        import threading
        class Handle:
            def __init__(self, n, lock): self.n, self.lock = n, lock
            def __nki_fingerprint__(self): return ("handle", self.n)
        HANDLE = Handle(1, threading.Lock())
        def kernel(x): return HANDLE.n
    """
    names = namespace(source)
    before = key_of(keys, names["kernel"])
    names["HANDLE"].n = 2
    assert key_of(keys, names["kernel"]) != before


def test_deep_call_chains_need_no_stack(keys: Fingerprinter) -> None:
    lines = [f"def f{n}(x): return f{n + 1}(x) + T{n % 7}" for n in range(3000)]
    lines += [f"T{n} = {n}" for n in range(7)] + ["def f3000(x): return LAST", "LAST = 1"]
    names = namespace("\n".join(lines))
    before = key_of(keys, names["f0"])
    names["LAST"] = 2
    assert key_of(keys, names["f0"]) != before


def test_snapshots_are_bounded() -> None:
    keys = Fingerprinter(snapshots=3)
    kernels = [namespace(f"def kernel(x): return {n}")["kernel"] for n in range(8)]
    first = [keys.fingerprint(each, ()) for each in kernels]
    assert first == [keys.fingerprint(each, ()) for each in kernels]
    assert len(keys._snapshots) == 3


def test_plan_names_every_read() -> None:
    def sample(k: Any) -> Any:
        import collections.abc as abc

        first, second = k, abc.Sized
        return [settings.tile.SIZE + first for _ in second], lambda: other + k  # noqa: F821

    chains = {(each.root, each.name, each.attributes) for each in reads_of(sample.__code__).chains}
    assert ("import", "collections", ("abc", "Sized")) in chains
    assert ("global", "settings", ("tile", "SIZE")) in chains
    assert ("global", "other", ()) in chains
