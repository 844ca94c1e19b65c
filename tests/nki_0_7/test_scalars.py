"""NkiScalar, scalar_load, scalar_store, 64-bit integers; fori_loop with scalars.

From the pages nki.isa.NkiScalar, scalar_load, scalar_store, nki.language.fori_loop and "NKI Scalar
Values" of SDK 2.33.
"""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompileError, NkiValidationError, OutOfBoundsError
from nki_dist.isa.scalar import NkiScalar
from tests.isa.helpers import numbers, output, run

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
X = numbers(1, (9, 5))


def computed(expression, *values, dtype=np.int32, debugged=False):
    """`expression` of scalars that are loaded from tiles, stored and returned."""

    @nki.jit
    def kernel(x):
        scalars = []
        for n in range(len(values)):
            tile = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[n : n + 1, :])
            scalars.append(nisa.scalar_load(tile))
        result = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_store(result, expression(*scalars))
        return output(result)

    made = nki.debug(kernel) if debugged else nki.simulate(kernel)
    return int(made(np.array(values, dtype).reshape(-1, 1))[0, 0])


def wrapped(value, dtype):
    """Two's complement, by NumPy's own conversion."""
    bits = 8 * np.dtype(dtype).itemsize
    return int(np.array([value % 2**bits], f"u{bits // 8}").view(dtype)[0])


EXPRESSIONS = {
    "i * 4 + 1": lambda i: i * 4 + 1,
    "7 - i": lambda i: 7 - i,
    "-i": lambda i: -i,
    "+i": lambda i: +i,
    "i - 3": lambda i: i - 3,
    "2 * i * i": lambda i: 2 * i * i,
    "i + i": lambda i: i + i,
}


@pytest.mark.parametrize("debugged", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_arithmetic(text, dtype, debugged):
    for value in (5, -3, np.iinfo(dtype).max, np.iinfo(dtype).min):
        got = computed(EXPRESSIONS[text], value, dtype=dtype, debugged=debugged)
        assert got == wrapped(eval(text, {"i": int(value)}), dtype)


def test_the_page_s_examples_of_wrapping():
    assert computed(lambda a, b: a * b, 100000, 100000) == 1410065408
    assert computed(lambda a: a + 1, INT32.max) == INT32.min
    assert computed(lambda a, b: a * b, 100000, 100000, dtype=np.int64) == 10**10


@pytest.mark.parametrize("place", ["sbuf", "hbm"])
@pytest.mark.parametrize("value", [2**40 + 3, -(2**62), INT64.max, INT64.min])
def test_64_bits_are_loaded_moved_and_stored_whole(value, place):
    def kernel(x):
        source = nl.load(x) if place == "sbuf" else x
        out = nl.ndarray((1, 1), dtype=nl.int64, buffer=nl.shared_hbm)
        scalar = nisa.scalar_load(source)
        assert isinstance(scalar, NkiScalar) and scalar.dtype == nl.int64
        nisa.scalar_store(out, scalar)
        return out

    got = run(kernel, np.array([[value]], np.int64))
    assert got.dtype == np.int64 and got.tolist() == [[value]]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_dma_moves_wide_integers(dtype):
    x = np.random.default_rng(3).integers(0, 2**63, (5, 7)).astype(dtype)

    def kernel(x):
        return output(nl.load(x)), output(nl.load(x).view(nl.uint32))

    moved, words = run(kernel, x)
    assert moved.dtype == dtype and np.array_equal(moved, x)
    assert np.array_equal(words, x.view(np.uint32))


WIDE = {
    "memset": lambda t, s: nisa.memset(t, 0),
    "tensor_copy": lambda t, s: nisa.tensor_copy(t, t),
    "tensor_tensor": lambda t, s: nisa.tensor_tensor(s, t, t, nl.add),
    "dma_copy that converts": lambda t, s: nisa.dma_copy(s, t),
    "dma_transpose": lambda t, s: nisa.dma_transpose(t, t),
    "register_load": lambda t, s: nisa.register_load(nisa.register_alloc(), t),
}


@pytest.mark.parametrize("name", WIDE)
def test_no_other_instruction_takes_them(name):
    def kernel(x):
        t, s = nl.load(x), nl.ndarray((1, 1), dtype=nl.int32)
        WIDE[name](t, s)
        return output(s)

    with pytest.raises(NkiValidationError, match=r"has dtype int64.*\.view\(nl\.int32\)") as caught:
        run(kernel, np.ones((1, 1), np.int64))
    assert caught.value.code == "dtype-wide"


# ---- offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offset_of_a_tensor_in_hbm(dtype):
    def kernel(x, n):
        i = nisa.scalar_load(n)
        row = nl.ndarray((1, 5), dtype=x.dtype)
        nisa.dma_copy(row, x.ap([[5, 1], [1, 5]], scalar_offset=i * 2 - 1, indirect_dim=0))
        return output(row), output(nl.load(x[nl.ds(i, 2), :]))

    first, second = run(kernel, X, np.array([[3]], dtype))
    assert np.array_equal(first, X[5:6]) and np.array_equal(second, X[3:5])


def test_offset_on_chip_has_32_bits():
    def kernel(x, n):
        tile, i = nl.load(x), nisa.scalar_load(n)
        got = nl.ndarray((9, 1), dtype=x.dtype)
        nisa.tensor_copy(got, tile.select(1, i))
        return output(got)

    assert np.array_equal(run(kernel, X, np.array([[2]], np.int32)), X[:, 2:3])
    with pytest.raises(NkiValidationError, match="int64 as the offset of a tensor in SBUF") as e:
        run(kernel, X, np.array([[2]], np.int64))
    assert e.value.code == "scalar-width"


def test_an_offset_outside_is_found():
    def kernel(x, n):
        return output(nl.load(x[nl.ds(nisa.scalar_load(n) * 3, 2), :]))

    with pytest.raises(OutOfBoundsError):
        run(kernel, X, np.array([[3]], np.int32))


# ---- loops --------------------------------------------------------------------------------------


def rows_copied(x, lower, upper, step=1, load=True):
    """Rows that the rounds of a loop copy, with the classes of the bounds as given."""
    seen = []

    def kernel(x, bounds):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.zeros_like(nl.load(x)))

        def body(i):
            seen.append(type(i))
            nl.store(out[nl.ds(i, 1), :], nl.load(x[nl.ds(i, 1), :]))

        nl.fori_loop(lower(bounds[0:1, :]), upper(bounds[1:2, :]), body, step=step)
        return out

    return run(kernel, x, np.array([[2], [8]], np.int32)), seen[0]


def as_scalar(t):
    return nisa.scalar_load(t) * 1


def as_register(t):
    register = nisa.register_alloc()
    nisa.register_load(register, t)
    return register


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("upper", [as_scalar, as_register, lambda t: 8])
@pytest.mark.parametrize("lower", [as_scalar, as_register, lambda t: 2])
def test_bounds_of_loops(lower, upper, step):
    """The body gets an NkiScalar unless a bound is a register."""
    got, kind = rows_copied(X, lower, upper, step)
    want = np.zeros_like(X)
    want[2:8:step] = X[2:8:step]
    assert np.array_equal(got, want)
    assert kind is (nisa.VirtualRegister if as_register in (lower, upper) else NkiScalar)


def test_a_scalar_of_the_body_is_computed_in_every_round():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))

        def body(i):
            nl.store(out[nl.ds(8 - i * 2, 1), :], nl.load(x[nl.ds(i, 1), :]))

        nl.fori_loop(0, 4, body)
        return out

    want = X.copy()
    for i in range(4):
        want[8 - 2 * i] = X[i]
    assert np.array_equal(run(kernel, X), want)
    assert np.array_equal(nki.debug(nki.jit(kernel))(X), want)


def test_a_kernel_of_0_6_gets_a_register():
    def kernel(x):
        nl.fori_loop(0, 2, lambda i: nl.load(x[nl.ds(i + 1, 1), :]))

    with (
        nki.World(host="inprocess", release="0.6") as world,
        pytest.raises(CompileError, match="arithmetic of a register"),
    ):
        world.run(nki.jit(kernel), X)


def test_rounds_cant_hand_on_a_scalar():
    def kernel(x, n):
        total = nisa.scalar_load(n)

        def body(i):
            nonlocal total
            total = total + i

        nl.fori_loop(0, 4, body)
        return output(nl.load(x))

    with pytest.raises(CompileError, match=r"scalar of before the loop.*nisa\.scalar_store") as e:
        run(kernel, X, np.array([[3]], np.int32))
    assert e.value.code == "loop-carries-name"


# ---- refusals -----------------------------------------------------------------------------------

REFUSED = {
    "unequal widths": (lambda i, w: i + w, "scalar-dtypes", "int32 and int64; their dtypes must"),
    "a float": (lambda i, w: i * 2.0, "scalar-operand", "allowed: ints and NkiScalars"),
    "a bool": (lambda i, w: i + True, "scalar-operand", "True of type bool"),
    "too large": (lambda i, w: i + 2**31, "scalar-operand", "doesn't fit; allowed: -2147483648"),
    "a register": (lambda i, w: i + nisa.register_alloc(1), "scalar-operand", "VirtualRegister"),
    "division": (lambda i, w: i // 2, "scalar-operator", r"\+, - and \* only"),
    "shift": (lambda i, w: 1 << i, "scalar-operator", r"\+, - and \* only"),
    "comparison of 64 bits": (lambda i, w: w < 3, "scalar-comparison", "none of 64 bits"),
    "comparison in Python": (lambda i, w: 1 if i < 3 else 2, "scalar-comparison", "can't branch"),
    "equality in Python": (lambda i, w: bool(i == 3), "scalar-comparison", "can't branch"),
    "inequality in Python": (lambda i, w: bool(i != 3), "scalar-comparison", "can't branch"),
    "arithmetic of a comparison": (lambda i, w: (i < 3) + 1, "scalar-comparison", "nothing can"),
    "storing a comparison": (lambda i, w: store(i >= 3), "scalar-comparison", "nothing can use"),
    "truth": (lambda i, w: bool(i), "branch-on-register", "branch on an NkiScalar"),
    "while": (lambda i, w: loop_while(i), "branch-on-register", "branch on an NkiScalar"),
    "int": (lambda i, w: int(i), "register-as-value", "only known when the kernel runs"),
    "bound of 64 bits": (
        lambda i, w: nl.fori_loop(0, w, lambda i: None),
        "scalar-width",
        "int64 as a loop bound; allowed: int32",
    ),
    "while_loop": (lambda i, w: nl.while_loop(i, lambda r: r), "loop-bound", "needs a register"),
    "storing a number": (lambda i, w: store(3), "scalar-operand", "nisa.memset writes numbers"),
    "storing a register": (
        lambda i, w: store(nisa.register_alloc(1)),
        "scalar-operand",
        "nisa.register_store registers",
    ),
    "storing wide in narrow": (lambda i, w: store(w), "scalar-dtypes", "int32, the scalar 64 bits"),
    "storing narrow in wide": (
        lambda i, w: store(i, nl.int64),
        "scalar-dtypes",
        "int64, the scalar 32 bits",
    ),
    "loading two": (lambda i, w: load((1, 2), nl.int32), "scalar-tensor", "the tensor has 2"),
    "loading uint32": (lambda i, w: load((1, 1), nl.uint32), "dtype-operand", "int32, int64"),
    "loading uint64": (lambda i, w: load((1, 1), nl.uint64), "dtype-operand", "int32, int64"),
    "writing": (lambda i, w: nisa.register_move(i, 3), "scalar-written", "never written again"),
    "64 bits in a register": (
        lambda i, w: nisa.register_move(nisa.register_alloc(), w),
        "scalar-width",
        "int64 as src",
    ),
}


def store(value, dtype=nl.int32):
    nisa.scalar_store(nl.ndarray((1, 1), dtype=dtype), value)


def load(shape, dtype):
    nisa.scalar_load(nl.ndarray(shape, dtype=dtype))


def loop_while(scalar):
    while scalar:
        pass


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    wrong, code, message = REFUSED[case]

    def kernel(narrow, wide):
        wrong(nisa.scalar_load(narrow), nisa.scalar_load(wide))
        return output(nl.load(narrow))

    with pytest.raises((CompileError, NkiValidationError), match=message) as caught:
        run(kernel, np.array([[3]], np.int32), np.array([[4]], np.int64))
    assert caught.value.code == code
    assert caught.value.location and __file__ in caught.value.location


def test_a_comparison_alone_is_traced():
    assert computed(lambda i: (i < 3, i == 4, i)[2], 5) == 5


def test_scalars_are_registers_where_those_are_taken():
    def kernel(x, n):
        i, place = nisa.scalar_load(n), nl.ndarray((1, 1), dtype=nl.int32)
        copy = nisa.register_alloc()
        nisa.register_move(copy, i + 1)
        nisa.register_store(place, copy)
        return output(place), output(nl.load(x).select(1, i))

    place, column = run(kernel, X, np.array([[2]], np.int32))
    assert place.tolist() == [[3]] and np.array_equal(column, X[:, 2:3])


def test_unwritten_memory_is_no_scalar():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i = nisa.scalar_load(nl.ndarray((1, 1), dtype=nl.int32))
        nisa.dma_copy(out[nl.ds(i, 1), :], x[0:1, :])
        return out

    with pytest.raises(nki.errors.UninitializedReadError):
        run(kernel, X)


def test_scalars_on_ray_and_in_files(tmp_path):
    @nki.jit
    def kernel(n):
        out = nl.ndarray((1, 1), dtype=nl.int64, buffer=nl.shared_hbm)
        nisa.scalar_store(out, nisa.scalar_load(n) * 3 - 1)
        return out

    n = np.array([[2**50]], np.int64)
    assert kernel(n).tolist() == [[3 * 2**50 - 1]]
    kernel.compile(n).save(tmp_path / "scalar.nkip")
    with nki.World(host="inprocess") as world:
        loaded = type(kernel.compile(n)).load(tmp_path / "scalar.nkip")
        assert world.run(loaded, n)[0].tolist() == [[3 * 2**50 - 1]]
