"""Trees of arguments: what is opened, what paths say, what survives being rebuilt."""

from __future__ import annotations

import collections
import dataclasses
import enum
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from nki_dist.errors import CompileError
from nki_dist.launcher.cachekey import Fingerprinter
from nki_dist.program.pytree import flatten, tree_map


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclasses.dataclass
class Layer:
    weights: Any
    bias: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.weights, (np.ndarray, list, dict)):
            raise AssertionError("rebuilding must not run __post_init__")


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    w: Any
    n: int = 3


class Struct:
    __nki_object__ = True

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


class Kind(enum.Enum):
    A = (1,)


def arrays(count: int) -> list[np.ndarray]:
    return [np.full((n + 1, 3), n, np.float32) for n in range(count)]


def test_paths_and_leaves() -> None:
    a, b, c, d, e, f = arrays(6)
    tree = ([a, (b, 5)], {"q": [c], 2: None}, Pair(d), Layer({"q": [0, e]}), Struct(x=Frozen(f)))
    leaves, _ = flatten(tree, root="args")
    assert [path for path, _ in leaves] == [
        *("args[0][0]", "args[0][1][0]", "args[0][1][1]", "args[1]['q'][0]", "args[1][2]"),
        *("args[2].left", "args[2].right", "args[3].weights['q'][0]", "args[3].weights['q'][1]"),
        *("args[3].bias", "args[4].x.w", "args[4].x.n"),
    ]
    found = [leaf for _, leaf in leaves if isinstance(leaf, np.ndarray)]
    assert all(x is y for x, y in zip(found, (a, b, c, d, e, f), strict=True))


def test_objects_are_rebuilt_without_their_constructors() -> None:
    layer, frozen, struct = Layer(np.ones(2)), Frozen(np.ones(2)), Struct(a=[1], b=2)
    layer.extra = 5  # type: ignore[attr-defined]
    new_layer, new_frozen, new_struct = tree_map(lambda leaf: "t", [layer, frozen, struct])
    assert (new_layer.weights, new_layer.bias, new_layer.extra) == ("t", "t", "t")
    assert new_frozen == Frozen("t", "t")  # type: ignore[arg-type]
    assert vars(new_struct) == {"a": ["t"], "b": "t"}
    assert (type(new_layer), type(new_struct)) == (Layer, Struct)
    assert isinstance(layer.weights, np.ndarray) and struct.a == [1]  # originals untouched


def test_unset_slots_stay_unset() -> None:
    half = object.__new__(Frozen)
    object.__setattr__(half, "n", 1)
    copied = tree_map(lambda leaf: leaf + 1, half)
    assert copied.n == 2 and not hasattr(copied, "w")


def test_container_subclasses_keep_their_kind() -> None:
    class Stack(list):
        pass

    stack = Stack([1])
    stack.label = "s"  # type: ignore[attr-defined]
    ordered = collections.OrderedDict(b=1, a=2)
    default = collections.defaultdict(list, k=3)
    stack2, ordered2, default2 = tree_map(lambda leaf: leaf * 10, [stack, ordered, default])
    assert type(stack2) is Stack and stack2 == [10] and stack2.label == "s"
    assert list(ordered2.items()) == [("b", 10), ("a", 20)]
    assert type(ordered2) is collections.OrderedDict
    assert default2["k"] == 30 and default2["missing"] == []
    assert stack == [1] and default["k"] == 3


@pytest.mark.parametrize(
    "leaf",
    [
        *(Kind.A, Layer, {1, 2}, np.zeros((2, 3)), len, range(3), np.float32(1), "text", None),
        *(slice(1), sys.version_info, np.array([[1]], object)),
    ],
)
def test_everything_else_is_a_leaf(leaf: Any) -> None:
    ((path, found),) = flatten([leaf])[0]
    assert path == "[0]" and found is leaf


def test_sharing_is_kept() -> None:
    array, shared = np.zeros((2, 3)), [1]
    tree = [array, shared, {"again": array, "box": shared}]
    mapped = tree_map(lambda leaf: [leaf], tree)
    assert mapped[0] is mapped[2]["again"]
    assert mapped[1] is mapped[2]["box"] and mapped[1] is not shared
    assert [path for path, _ in flatten(tree)[0]] == ["[0]", "[1][0]"]
    again = flatten(tree)[1].unflatten(["a", "b"])
    assert again == ["a", ["b"], {"again": "a", "box": ["b"]}] and again[1] is again[2]["box"]


def test_cycles_are_refused() -> None:
    loop: list[Any] = [1]
    loop.append({"back": loop})
    with pytest.raises(CompileError, match=r"list at x holds itself, at x\[1\]\['back'\]"):
        flatten(loop, root="x")
    struct = Struct()
    struct.me = (struct,)  # type: ignore[attr-defined]
    with pytest.raises(CompileError, match=r"Struct at the top holds itself, at \.me\[0\]"):
        tree_map(str, struct)


def test_rebuilt_arguments_have_the_same_key() -> None:
    """Launcher and compile cache meet here: copying arguments must not cost a trace."""
    keys = Fingerprinter()
    tree = {"a": [Frozen(1), Pair(2, 3)], "b": Struct(n=(1, 2.5))}
    assert keys.fingerprint(arrays, tree) == keys.fingerprint(arrays, tree_map(lambda x: x, tree))
