"""Names of tensors, read off the bytecode after the call that made them."""

import contextlib
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.naming import Names
from nki_dist.errors import NkiValidationError

LIBRARY = "<library>"


class Watcher:
    """Stands for an allocation: remembers what its caller's statement calls the result."""

    def __init__(self):
        self.names = Names(lambda code: code.co_filename == LIBRARY)
        self.found = []

    def __call__(self, *args, **kwargs):
        self.found.append(self.names.of(sys._getframe(1)))
        return self

    def __iter__(self):
        return iter([self, self])

    def __getitem__(self, key):
        return self


def found(source, library=""):
    """Names of the values of `make(...)` in a function body, in order of the calls."""
    make = Watcher()
    scope = {"make": make, "space": SimpleNamespace(make=make, inner=SimpleNamespace())}
    scope.update(null=contextlib.nullcontext, text=str)
    exec(compile(textwrap.dedent(library), LIBRARY, "exec"), scope)
    body = textwrap.indent(textwrap.dedent(source), "    ")
    exec(compile(f"def kernel(arg, tiles, i=3):\n{body}", "<kernel>", "exec"), scope)
    scope["kernel"](SimpleNamespace(), {})
    return make.found


STATEMENTS = {
    "a = make()": ["a"],
    "a = make(1, arg, key=i, other='x')": ["a"],
    "a = space.make(arg, 2)": ["a"],
    "a: int = make(1)": ["a"],
    "a = b = make(1)": ["a"],
    "if (a := make(1)): pass": ["a"],
    "global g\ng = make(1)": ["g"],
    "a = make(1)\ndef inner(): return a": ["a"],
    "a = make(1) if i else None": ["a"],
    "a = None if not i else make(1)": ["a"],
    "with null(): a = make(1)": ["a"],
    "try: a = make(1)\nfinally: pass": ["a"],
    "for n in range(2): a = make(n)": ["a", "a"],
    # several at once
    "a, b = make(1, 2), make(3, key=4)": ["a", "b"],
    "n, a, b = text(i), space.make(i), make(arg)": ["a", "b"],
    "a, n = make(1), space.make(1, key=2)[3]": ["a", ""],
    "a, b, c, d = make(1), make(2), make(3), make(4)": ["a", "b", "c", "d"],
    "(a, b), c = (make(1), make(2)), make(3)": ["a", "b", "c"],
    "n, a = text(i) + text(arg.__class__), make(i * 2)": ["a"],
    # inside other things
    "arg.acc = make(1)": ["arg.acc"],
    "space.inner.acc = make(1)": ["space.inner.acc"],
    "tiles[i] = make(1)": ["tiles[i]"],
    "tiles[0] = make(1)": ["tiles[0]"],
    "tiles[i, 'k'] = make(1)": ["tiles[i, 'k']"],
    "tiles[i + 1] = make(1)": ["tiles[...]"],
    "a = make(1), make(2)": ["a[0]", "a[1]"],
    "a = [make(1), make(2)]": ["a[0]", "a[1]"],
    "a = [[make(1)], make(2)]": ["a[0][0]", "a[1]"],
    # nobody's
    "make(1)": [""],
    "a = text(make(1))": [""],
    "a = make(1)[0]": [""],
    "a = [text(1), text(make(2))]": [""],
    "a, b = make(1)": [""],
    "a = {'k': make(1)}": [""],
    "a = (text if i else make)(make(1))": [""],
    f"{'very_' * 20}long = make(1)": [""],
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(statement):
    assert found(statement) == STATEMENTS[statement]


def test_comprehensions():
    assert found("a = [make(n) for n in range(2)]") == ["a[...]"] * 2
    assert found("a = [(text(n), make(n)) for n in range(1)]") == ["a[...][1]"]
    assert found("a, b = [make(n) for n in range(2)]") == ["", ""]


def test_helpers_of_the_user():
    handing_on = "def helper(*s): return make(*s)\n"
    assert found(handing_on + "a = helper(1, 2)") == ["a"]
    assert found(handing_on + "a, b = helper(1), helper(2)") == ["a", "b"]
    assert found("def helper(): return make(1), make(2)\na, b = helper()") == ["a", "b"]
    assert found("def helper():\n  made = make(1)\n  return made\na = helper()") == ["made"]
    assert found("def helper(): return text(make(1))\na = helper()") == [""]


def test_helpers_of_the_library():
    library = """
    def load(x):
        tile = make(x)
        text(tile)
        return tile
    def through(x): return load(x)
    def temporary(x):
        first = load(x)
        second = load(x)
        return second
    def wrapped(x):
        tile = make(x)
        return [tile][0] if x is None else wrap(tile, key=x)
    def converted(x):
        return wrap(wrap(make(x)))
    def used(x):
        tile = make(x)
        other = wrap(tile)
        return x
    def wrap(x, key=None): return x
    """
    for call in ("load", "through", "wrapped", "converted"):
        assert found(f"a = {call}(i)", library) == ["a"]
    assert found("a = temporary(i)", library) == ["", "a"]
    assert found("a = used(i)", library) == [""]


def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, other = nl.load(x), nl.zeros((4, 6), dtype=nl.float32)
    given = nl.ndarray((4, 6), dtype=nl.float32, name="mine")
    assert (out.name, tile.name, given.name) == ("", "", "mine")
    total = nl.softmax(nl.add(tile, other), axis=1)
    nl.store(out, total)
    return out


def test_programs_keep_names_apart_from_those_of_the_kernel(tmp_path):
    x = np.ones((4, 6), np.float32)
    compiled = nki.simulate(nki.jit(kernel)[2]).compile(x)
    for program in compiled.programs:
        titles = {s.title: (s.name, s.called) for s in program.storages}
        for called in ("out", "tile", "other", "total"):
            assert titles[called] == ("", called)
        assert titles["mine"] == ("mine", "") and titles["x"] == ("x", "")
        assert "total" not in [s.title for s in program.storages[:5]]
    path = tmp_path / "kernel"
    compiled.save(path)
    for program, back in zip(compiled.programs, Compiled.load(path).programs, strict=True):
        names = [[(s.name, s.called) for s in p.storages] for p in (program, back)]
        assert names[0] == names[1]


def test_equal_kernels_are_equal_programs():
    x = np.ones((4, 6), np.float32)
    one, two = (nki.simulate(kernel).compile(x).programs[0] for _ in range(2))
    assert [s.title for s in one.storages] == [s.title for s in two.storages]


def test_code_without_a_source_file():
    scope = {"nl": nl}
    exec("def made(x):\n  tile = nl.load(x)\n  return tile.reshape((3, 8))", scope)
    with pytest.raises(NkiValidationError, match=r"partition dimension of tile \(4x6"):
        nki.simulate(scope["made"])(np.ones((4, 6), np.float32))
