"""All the ways published kernels declare and fill their structs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest

import nki_dist.language as nl
from nki_dist.language import NKIObject
from tests.language.run import run


class Mode(Enum):
    fast = 1
    slow = 2


class Annotated(NKIObject):
    rows: int
    columns: int = 4
    mode: Mode = Mode.fast


class Plain(NKIObject):
    scale = 1.0
    function = nl.gelu
    kind = np.float32
    shared = []  # noqa: RUF012 -- kernels do this

    def area(self):
        return self.scale * 2

    @property
    def doubled(self):
        return 2 * self.scale

    class Inner:
        pass


@dataclass
class Data(NKIObject):
    rows: int
    columns: int = 3
    parts: list = field(default_factory=list)


@dataclass
class Bare(NKIObject):
    start = 0
    size = None
    tile = None


@dataclass(frozen=True)
class Frozen(NKIObject):
    rows: int
    name: str = "x"


@dataclass
class Child(Data):
    extra: int = 9


def test_fields_by_annotation_only():
    made = Annotated(rows=3, mode=Mode.slow)
    assert (made.rows, made.columns, made.mode) == (3, 4, Mode.slow)
    assert Annotated().rows is None
    made.columns = 7
    assert (made.columns, Annotated().columns) == (7, 4)


def test_fields_without_annotation_become_keywords():
    made = Plain(scale=3.0, function=nl.relu, kind=np.float16)
    assert (made.scale, made.function, made.kind) == (3.0, nl.relu, np.float16)
    assert (made.area(), made.doubled) == (6.0, 6.0)
    assert Plain().function is nl.gelu and Plain().shared is Plain.shared


def test_methods_properties_and_nested_classes_arent_fields():
    for name in ("area", "doubled", "Inner", "missing"):
        with pytest.raises(TypeError, match=rf"Plain\(\) got an unexpected keyword '{name}'"):
            Plain(**{name: 1})


def test_dataclasses():
    made = Data(5)
    assert (made.rows, made.columns, made.parts) == (5, 3, [])
    assert made == Data(rows=5, columns=3)
    assert Data().rows is None
    assert Data(1).parts is not Data(1).parts
    with pytest.raises(TypeError, match="unexpected keyword"):
        Data(width=2)


def test_dataclasses_with_unannotated_fields():
    made = Bare(start=2, tile="t")
    assert (made.start, made.size, made.tile) == (2, None, "t")
    assert Bare() == Bare(start=0)


def test_frozen_dataclasses():
    made = Frozen(rows=2)
    assert (made.rows, made.name) == (2, "x")
    with pytest.raises(AttributeError):
        made.rows = 3


def test_fields_are_inherited():
    made = Child(rows=1, extra=2)
    assert (made.rows, made.columns, made.extra) == (1, 3, 2)

    class Grand(Annotated):
        depth: int

    assert Grand(rows=1, depth=2).columns == 4
    assert Annotated.__annotations__.keys() == {"rows", "columns", "mode"}


def test_an_own_init_is_respected():
    class Own(NKIObject):
        total: int

        def __init__(self, a, b):
            self.total = a + b

    assert Own(1, 2).total == 3


def test_structs_carry_tiles_through_a_kernel():
    @dataclass
    class Tiles(NKIObject):
        left = None
        right = None

    def add(tiles, config):
        assert config.columns == 4
        return nl.add(tiles.left, tiles.right)

    def kernel(x, config):
        tiles = Tiles(left=nl.load(x), right=nl.load(x))
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, add(tiles, config))
        return out

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run(kernel, x, Annotated(rows=3)), 2 * x)
