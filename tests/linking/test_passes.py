"""Each pass of linking may be left out: the program is another one, and no bit changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from nki_dist.linking.linked import Late, LinkedLoop
from nki_dist.linking.moving import Moving
from nki_dist.linking.passes import VARIABLE, left_out, link_passes
from nki_dist.linking.placing import Placed
from nki_dist.program import Instruction
from nki_dist.runtime.group import placed_program

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning")

rng = np.random.default_rng(7)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def tile_of(source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def product(left, right, rows, columns):
    """left.T @ right, of tiles (128, rows) and (128, columns), to SBUF."""
    psum = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    for a, b in zip(left, right, strict=True):
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)
    tile = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    return tile


@nki.jit
def large(a, b):
    """Two large chains with the same moving operands, tiles that nobody else looks at."""
    (depth, rows), columns = a.shape, b.shape[1]
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = [[tile_of(x[n : n + 128]) for n in range(0, depth, 128)] for x in (a, b)]
    for row in range(0, rows, 128):
        part = [tile[:, row : row + 128] for tile in left]
        nisa.dma_copy(dst=out[row : row + 128], src=product(part, right, 128, columns))
    return out


@nki.jit
def repeated(a, b):
    """Small chains, the stationary operands of which come again."""
    depth, rows = a.shape
    out = nl.ndarray((3, rows, 40), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = [[tile_of(x[n : n + 128]) for n in range(0, depth, 128)] for x in (a, b)]
    for n in range(3):
        part = [tile[:, 40 * n : 40 * n + 40] for tile in right]
        nisa.dma_copy(dst=out[n], src=product(left, part, rows, 40))
    return out


@nki.jit
def chosen(x, places):
    """The rows of x that are asked for, twice, by an index of a loop and one in a tensor."""
    columns = x.shape[1]
    out = nl.ndarray((len(places), columns), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in nl.dynamic_range(len(places)):
        place = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=place, src=places.ap([[1, 1], [1, 1]], scalar_offset=n))
        tile = nl.ndarray((1, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[columns, 1], [1, columns]], scalar_offset=place))
        twice = nl.ndarray((1, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=twice, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out.ap([[columns, 1], [1, columns]], scalar_offset=n), src=twice)
    return out


A, B = normal(512, 256), normal(512, 512)
CASES: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "panels": (repeated, (normal(384, 24, dtype=nl.bfloat16), normal(384, 120, dtype=nl.bfloat16))),
    "loads": (large, (A, B)),
    "addresses": (chosen, (normal(9, 6), np.array([[3, 0, 8, 3, 1]], np.int32).T)),
}
WAYS = [*link_passes(), "all", "loads, panels"]


def bits(kernel: Any, arguments: Sequence[np.ndarray]) -> bytes:
    """Of two launches, the second of which finds everything linked."""
    with nki.World(ranks=1, host="inprocess") as world:
        (out,), (again,) = (world.run(kernel, *arguments) for _ in range(2))
    assert out.tobytes() == again.tobytes()
    return out.tobytes()


@pytest.mark.parametrize("without", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_the_program_with_all_passes(case, without, monkeypatch):
    kernel, arguments = CASES[case]
    monkeypatch.delenv(VARIABLE, raising=False)
    wanted = bits(kernel, arguments)
    monkeypatch.setenv(VARIABLE, without)
    assert bits(kernel, arguments) == wanted


def test_results_are_those_of_numpy():
    (left, right), (x, places) = CASES["loads"][1], CASES["addresses"][1]
    out = np.frombuffer(bits(large, (left, right)), np.float32).reshape(256, 512)
    np.testing.assert_allclose(out, left.astype(np.float64).T @ right, rtol=1e-4, atol=1e-3)
    assert bits(chosen, (x, places)) == (x[places[:, 0]] * 2).tobytes()


def linked(case: str, without: str, monkeypatch: pytest.MonkeyPatch) -> Placed:
    kernel, arguments = CASES[case]
    (program,) = kernel.compile(*arguments).programs
    monkeypatch.setenv(VARIABLE, without)
    return placed_program(program)


def steps(body: Sequence[Any]) -> Iterator[tuple[Instruction, Any]]:
    for item in body:
        if isinstance(item, LinkedLoop):
            yield from steps(item.body)
        else:
            yield from zip(item.instructions, item.steps, strict=True)


def calls(placed: Placed) -> Counter[str]:
    """How often each function is called, in straight runs."""
    made = [placed.steps[step].calls for _, step in steps(placed.body) if type(step) is int]
    return Counter(call[0].name for of in made for call in of)


def test_every_pass_has_a_kernel():
    assert set(CASES) == set(link_passes()) == set(nki.link_passes()), "CASES of this file"


@pytest.mark.parametrize("without", link_passes())
def test_every_pass_changes_its_kernel(without, monkeypatch):
    """What steps call, or of what kind they are."""

    def called(placed: Placed) -> list[object]:
        found = [step for _, step in steps(placed.body)]
        return [
            [call[0].name for call in placed.steps[of].calls] if type(of) is int else type(of)
            for of in found
        ]

    with_it, left = [called(linked(without, of, monkeypatch)) for of in ("", without)]
    assert with_it != left, f"leaving {without} out changes nothing of its kernel"


def test_panels_are_filled_once(monkeypatch):
    """Stationary operands once, moving ones for each of the three products, in three parts each."""
    kept, left = [calls(linked("panels", of, monkeypatch)) for of in ("", "panels")]
    fills = [sum(of.values()) - of["matmul"] for of in (kept, left)]
    assert fills[1] - fills[0] == 2 * 3
    assert kept["matmul"] == left["matmul"] == 3


def test_loads_are_not_made(monkeypatch):
    def idle(placed: Placed) -> list[str]:
        found = [(i, step) for i, step in steps(placed.body) if type(step) is int]
        return [i.opcode for i, step in found if not placed.steps[step].calls]

    copies = ["dma_copy"] * 4  # of moving tiles; stationary ones are too small
    assert [name for name in idle(linked("loads", "", monkeypatch)) if name == "dma_copy"] == copies
    assert "dma_copy" not in idle(linked("loads", "loads", monkeypatch))


def test_addresses_are_bound_once(monkeypatch):
    for without, kind in (("", Moving), ("addresses", Late)):
        found = [of for _, of in steps(linked("addresses", without, monkeypatch).body)]
        assert [type(of) for of in found if type(of) is not int] == [kind] * 3


@pytest.mark.parametrize(
    "text, passes",
    [
        ("", ()),
        ("loads", ("loads",)),
        (" loads , panels,", ("loads", "panels")),
        ("all", link_passes()),
    ],
)
def test_what_the_variable_names(text, passes, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    assert left_out() == set(passes)


@pytest.mark.parametrize("text, name", [("loads,made_up", "made_up"), ("all,loads", "all")])
def test_other_names_are_refused(text, name, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    kernel, arguments = CASES["addresses"]
    with pytest.raises(LaunchError, match=f"NKI_DIST_LINK_WITHOUT names '{name}'; .*all.*panels"):
        bits(kernel, arguments)
