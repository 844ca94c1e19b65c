"""Every change that can reach a program changes the key of its kernel, nothing else does."""

from __future__ import annotations

import functools
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

import pytest

from nki_dist.launcher.cachekey import Fingerprinter
from tests.cachekey.kernels import key_of, namespace


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
    "name, which programs carry": _run("kernel.__name__ = 'other'"),
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


def test_deep_call_chains_need_no_stack(keys: Fingerprinter) -> None:
    lines = [f"def f{n}(x): return f{n + 1}(x) + T{n % 7}" for n in range(3000)]
    lines += [f"T{n} = {n}" for n in range(7)] + ["def f3000(x): return LAST", "LAST = 1"]
    names = namespace("\n".join(lines))
    before = key_of(keys, names["f0"])
    names["LAST"] = 2
    assert key_of(keys, names["f0"]) != before


def test_names_that_are_not_text(keys: Fingerprinter) -> None:
    names = namespace("class Text(str): pass\ndef kernel(x): return x")
    kernel = names["kernel"]
    before = key_of(keys, kernel)
    kernel.__module__ = names["Text"]("there")
    assert key_of(keys, kernel) != before
