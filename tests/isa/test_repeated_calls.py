"""Calls like an earlier one: recorded like it, refused and warned of as if they were alone."""

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.encode import encode
from nki_dist.errors import CompilerMayRejectWarning, NkiError, NkiValidationError, OutOfBoundsError
from nki_dist.isa import patterns as patterns_module
from nki_dist.program.instruction import instructions
from tests.compiler.compiling import compiled

X = ((128, 512), np.float32)


def program(kernel):
    return compiled(kernel, X).programs[0]


def kernel_of(body):
    """A kernel that hands tiles to `body` and stores the first of them."""

    def kernel(x):
        tiles = [nl.ndarray((128, 64), nl.float32) for _ in range(3)]
        for tile in tiles:
            nisa.dma_copy(dst=tile, src=x[:, 0:64])
        body(x, *tiles)
        out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tiles[0])
        return out

    return kernel


def recorded(body, opcode):
    return [i for i in instructions(program(kernel_of(body)).body) if i.opcode == opcode]


def test_programs_are_the_same_with_and_without(monkeypatch):
    def body(x, a, b, c):
        for n in range(6):
            nisa.dma_copy(dst=a, src=x[:, 64 * n : 64 * n + 64])
            nisa.tensor_tensor(dst=b, data1=a, data2=c if n % 2 else b, op=nl.add)
            nisa.tensor_scalar(dst=c, data=b, op0=nl.multiply, operand0=n if n < 3 else float(n))
            nisa.activation(dst=a[32:64, 0:8], op=nl.exp, data=c[32:64, 8 * n : 8 * n + 8])

    fast = encode(program(kernel_of(body)))
    monkeypatch.setattr(patterns_module, "MOST", 0)  # nothing is kept
    assert encode(program(kernel_of(body))) == fast


def test_most_calls_of_a_loop_are_known(monkeypatch):
    checked = []
    monkeypatch.setattr(nisa.dma_copy, "verify", lambda i, arch: checked.append(i))

    def body(x, a, b, c):
        for n in range(100):
            nisa.dma_copy(dst=a, src=x[:, 4 * n : 4 * n + 64])

    recorded(body, "dma_copy")
    assert len(checked) < 10


def test_numbers_stay_as_they_are_given():
    given = [1, 1.0, 0.0, -0.0, 2, 0, 1.0, 1]

    def body(x, a, b, c):
        for number in given:
            nisa.tensor_scalar(dst=a, data=b, op0=nl.add, operand0=number)

    found = [i["operand0"] for i in recorded(body, "tensor_scalar")]
    assert list(map(repr, found)) == list(map(repr, given))


def test_a_number_that_is_equal_but_of_another_type_is_judged_by_itself():
    def body(x, a, b, c):
        whole = nl.ndarray((128, 64), nl.int32)
        for number in (1, 1, 1, 1.5):
            nisa.memset(whole, number)
        nisa.tensor_copy(dst=a, src=whole)

    with pytest.raises(NkiValidationError, match=r"value=1\.5 for dtype int32"):
        program(kernel_of(body))


def test_lists_that_change_are_looked_at_again():
    shape = [[1, 64]]

    def body(x, a, b, c):
        index = nl.ndarray((128, 64), nl.int32)
        nisa.iota(dst=index, pattern=shape, offset=0)
        shape[0][0] = 3
        nisa.iota(dst=index, pattern=shape, offset=0)
        nisa.tensor_copy(dst=a, src=index)

    first, second = recorded(body, "iota")
    assert first["pattern"] != second["pattern"]


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, a, b: {"dst": a, "src": b[:, 0:63]}, "elements per partition"),
        (lambda x, a, b: {"dst": a[7:9, :], "src": b[0:2, :]}, "starts at partition 7"),
        (lambda x, a, b: {"dst": a, "src": x[:, 0:64]}, "src is in shared_hbm"),
        (lambda x, a, b: {"dst": a, "src": a.ap([[64, 128], [1, 64]], 1)}, "covers"),
        (lambda x, a, b: {"dst": a, "src": 3.0}, "allowed: a tensor"),
        (lambda x, a, b: {"dst": a, "src": b, "engine": nisa.engine.tensor}, "allowed: "),
    ],
)
def test_a_wrong_call_after_right_ones_of_its_line_is_refused(before, wrong, message):
    def body(x, a, b, c):
        for arguments in [{"dst": a, "src": b}] * before + [wrong(x, a, b)]:
            nisa.tensor_copy(**arguments)

    with pytest.raises(NkiError, match=message):
        program(kernel_of(body))


@pytest.mark.parametrize("before", [0, 4])
def test_a_line_whose_last_call_leaves_its_tensor(before):
    """Only the offset differs: what was checked for the others holds for it but for the reach."""

    def body(x, a, b, c):
        for n in [0] * before + [449]:
            nisa.dma_copy(dst=a, src=x.ap([[512, 128], [1, 64]], n))

    with pytest.raises(OutOfBoundsError, match=r"offset 449 covers bytes"):
        program(kernel_of(body))


@pytest.mark.parametrize("before", [0, 4])
def test_a_line_whose_last_call_goes_from_one_row_into_the_next(before):
    def body(x, a, b, c):
        for n in [0] * before + [40]:
            nisa.tensor_copy(dst=a[0:64, 0:32], src=b.ap([[64, 64], [1, 32]], n))

    with pytest.raises(OutOfBoundsError, match=r"covers bytes \[160, 288\) of a partition"):
        program(kernel_of(body))


def test_a_line_whose_last_call_crosses_a_bank():
    def body(x, a, b, c):
        sums = nl.ndarray((64, 1024), nl.float32, buffer=nl.psum)
        for n in (0, 64, 128, 480):
            nisa.nc_matmul(dst=sums[:, n : n + 64], stationary=a[:, 0:64], moving=b)

    with pytest.raises(NkiValidationError, match="more than one bank"):
        program(kernel_of(body))


def test_what_is_warned_of_is_warned_of_on_every_line():
    def body(x, a, b, c):
        for _ in range(3):
            nisa.dma_copy(dst=a, src=b, dge_mode=2)
        nisa.dma_copy(dst=a, src=b, dge_mode=2)

    found = [
        w
        for w in compiled(kernel_of(body), X, check="refusals=all").warnings
        if isinstance(w, CompilerMayRejectWarning) and w.code == "enum-number"
    ]
    assert len({w.location for w in found}) == 2
    assert {w.hint for w in found} == {"write nisa.dge_mode.hwdge"}


def test_operands_of_one_storage_are_told_from_others():
    """A transpose by the Vector engine in place isn't one into another tile, nor the reverse."""

    def body(x, a, b, c):
        for dst, data in ((a, b), (a, a), (b, a), (b, b)) * 2:
            nisa.tensor_tensor(dst=dst, data1=data, data2=c, op=nl.add)

    found = recorded(body, "tensor_tensor")
    assert [i["dst"].storage is i["data1"].storage for i in found] == [False, True] * 4


def test_tensors_of_another_trace_are_refused_after_their_like():
    kept = []

    def body(x, a, b, c):
        kept.append(b)
        for tile in (b, b, b, kept[0]):
            nisa.tensor_copy(dst=a, src=tile)

    program(kernel_of(body))
    with pytest.raises(NkiError, match="belongs to another launch or core"):
        program(kernel_of(body))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (((128.0, 64), nl.float32, nl.sbuf), "allowed: a tuple of positive ints"),
        (((129, 64), nl.float32, nl.sbuf), "129 partitions"),
        (((128, 64), "float33", nl.sbuf), "float33"),
        (((128, 64), nl.float32, nl.sbuf, "", (1, 0)), "beyond partition 127"),
    ],
)
def test_a_wrong_allocation_after_right_ones_is_refused(wrong, message):
    def body(x, a, b, c):
        for arguments in [((128, 64), nl.float32, nl.sbuf)] * 3 + [wrong]:
            nl.ndarray(*arguments)

    with pytest.raises(NkiError, match=message):
        program(kernel_of(body))


def test_allocations_are_warned_of_on_every_line():
    def body(x, a, b, c):
        for _ in range(3):
            nl.ndarray((128, 64), np.float32)
        nl.ndarray((128, 64), np.float32)

    found = [
        w.location for w in compiled(kernel_of(body), X).warnings if w.code == "dtype-of-numpy"
    ]
    assert len(set(found)) == 2
