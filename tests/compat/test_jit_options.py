"""`nki.jit`: every documented form and option, nesting, and kernels given to kernels."""

import functools

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.compat import beta1

X = np.arange(15, dtype=np.float32).reshape(3, 5)

# Options of AWS's documentation, nki-library, nki-samples and triton-viz.
OPTIONS = (
    {"mode": "trace"},
    {"mode": "simulation"},
    {"mode": "auto", "debug_kernel": True, "show_compiler_tb": True},
    {"experimental_flags": "enable-mutable-parameter"},
    {"additional_compile_opt": "--disable-internal-io-dge"},
    {"kernel_return": False},
    {"platform_target": "trn2"},
)


def scaled(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=factor)
    nl.store(out, t)
    return out


def doubled_beta1(x):
    import nki_dist.compat.beta1.language as language

    out = language.ndarray(x.shape, dtype=x.dtype, buffer=language.shared_hbm)
    language.store(out, language.add(language.load(x), language.load(x)))
    return out


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o))
@pytest.mark.parametrize(
    ("jit", "fn"), [(nki.jit, scaled), (beta1.jit, doubled_beta1)], ids=["nki", "neuronxcc"]
)
def test_options_in_every_form(jit, fn, options):
    for kernel in (jit(**options)(fn), jit(fn, **options), functools.partial(jit, **options)(fn)):
        np.testing.assert_array_equal(kernel(X), 2 * X)
        np.testing.assert_array_equal(kernel[1](X), 2 * X)
        assert kernel.__name__ == fn.__name__


def generation(x):
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(t, int(nisa.get_nc_version()))
    nisa.dma_copy(out, t)
    return out


@pytest.mark.parametrize(
    ("names", "version"),
    [(("trn1", "inf2", "gen2"), 2), (("trn2", "gen3"), 3), (("trn3", "gen4"), 4)],
    ids=["v2", "v3", "v4"],
)
def test_the_platform_comes_from_the_decorator_then_from_the_environment(
    names, version, monkeypatch
):
    other = "trn3" if version < 4 else "trn1"
    for name in names:
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", other)
        assert nki.jit(generation, platform_target=name)(X) == version
        assert nki.jit(generation)(X) == {"trn3": 4, "trn1": 2}[other]
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
        assert nki.jit(generation)(X) == version
        monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
        assert nki.jit(generation)(X) == 3


def test_an_unknown_platform_is_refused(monkeypatch):
    with pytest.raises(errors.LaunchError, match="'trn9', allowed: trn1"):
        nki.jit(generation, platform_target="trn9")(X)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(errors.LaunchError, match=r"NEURON_PLATFORM_TARGET_OVERRIDE: .*'trn9'"):
        nki.jit(generation)(X)


def test_jit_of_a_kernel_adds_options_and_keeps_the_grid():
    inner = nki.jit(generation, platform_target="trn1")
    assert nki.jit(nki.jit(inner))(X) == 2
    assert nki.jit(inner, platform_target="trn3")(X) == 4
    assert nki.simulate(nki.jit(inner, mode="trace"))(X) == 2
    two = nki.jit(nki.jit(generation)[2])
    assert two.grid == 2 and two(X) == 3


def test_a_kernel_called_by_a_kernel_is_inlined_on_the_callers_platform():
    inner = nki.jit(generation, platform_target="trn1")

    @nki.jit(platform_target="trn3")
    def outer(x):
        return inner(x), inner[2](x)

    assert [v.item() for v in outer(X)] == [4, 4]


@nki.jit
def applied(x, kernels, names=("a",)):
    """The kernels of a dict, one after the other."""
    for name in names:
        x = kernels[name](x)
    return x


def test_kernels_given_as_arguments_decide_what_is_compiled():
    triple, plain = nki.jit(functools.partial(scaled, factor=3.0)), scaled
    for kernel, factor in ((nki.jit(scaled), 2), (triple, 3), (plain, 2), (triple, 3)):
        np.testing.assert_array_equal(applied(X, {"a": kernel}), factor * X)
    both = {"a": triple, "b": nki.jit(scaled)}
    np.testing.assert_array_equal(applied(X, both, names=("a", "b", "b")), 12 * X)
    np.testing.assert_array_equal(applied[1](X, {"a": applied, **both}, ()), X)

    def by(n):
        return nki.jit(lambda x: scaled(x, n))

    for n in (4.0, 5.0, 4.0):  # equal code, other values captured
        np.testing.assert_array_equal(applied(X, {"a": by(n)}), n * X)


def test_results_come_in_the_framework_of_the_arguments():
    assert type(nki.jit(scaled)(X)) is np.ndarray
    torch = pytest.importorskip("torch")
    out = nki.jit(scaled)(torch.from_numpy(X))
    assert type(out) is torch.Tensor and torch.equal(out, 2 * torch.from_numpy(X))
    jax = pytest.importorskip("jax")
    out = nki.jit(scaled)(jax.numpy.asarray(X))
    assert isinstance(out, jax.Array)
    np.testing.assert_array_equal(np.asarray(out), 2 * X)


@pytest.mark.parametrize("name", ["platform", "target", "platfrom_target", "target_platform"])
def test_the_platform_under_another_name_is_refused(name):
    with pytest.raises(errors.LaunchError, match=f"no option {name}; platform_target chooses"):
        nki.jit(**{name: "trn3"})(scaled)
