"""Kernels in JAX programs: arrays in and out, inside jit and vmap, with a custom gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels
from nki_dist.errors import LaunchError, NkiValidationError

jax = pytest.importorskip("jax")
jnp: Any = jax.numpy

softmax = nki.simulate(kernels.softmax[2])
softmax_backward = nki.simulate(kernels.softmax_backward[2])


@jax.custom_vjp
def smooth(x):
    return softmax(x)


def _forward(x):
    y = softmax(x)
    return y, y


def _backward(y, dy):
    return (softmax_backward(y, dy),)


smooth.defvjp(_forward, _backward)


def loss(x, w):
    return (smooth(2 * x) * w).sum()


def reference(x, w):
    return (jax.nn.softmax(2 * x, axis=-1) * w).sum()


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(0).standard_normal((5, 7)), jnp.float32)


def test_eager_results_are_jax_arrays(x):
    got = softmax(x.astype(jnp.bfloat16))
    assert isinstance(got, jax.Array) and got.dtype == jnp.bfloat16
    np.testing.assert_allclose(softmax(x), jax.nn.softmax(x, axis=-1), rtol=1e-5)


def test_inside_jit_with_its_gradient(x):
    w = jnp.arange(7.0)
    np.testing.assert_allclose(jax.jit(loss)(x, w), reference(x, w), rtol=1e-5)
    got = jax.jit(jax.grad(loss))(x, w)
    np.testing.assert_allclose(got, jax.grad(reference)(x, w), rtol=1e-4, atol=1e-6)


def test_a_jitted_function_runs_the_kernel_on_new_data_each_time(x):
    compiled = jax.jit(lambda a: softmax(a) + 1)
    for shift in (0.0, 1.0):
        a = x * (1 + shift)
        np.testing.assert_allclose(compiled(a), jax.nn.softmax(a, axis=-1) + 1, rtol=1e-5)


def test_vmap_runs_the_kernel_for_each_element(x):
    batch = jnp.stack([x, 2 * x, -x])
    got = jax.jit(jax.vmap(softmax))(batch)
    np.testing.assert_allclose(got, jax.nn.softmax(batch, axis=-1), rtol=1e-5)


def test_several_results_and_arguments_that_hold_data(x):
    rng = np.random.default_rng(1)
    q, k, v = (jnp.asarray(rng.standard_normal((1, 2, 8, 8)), jnp.float32) for _ in range(3))
    attend = nki.simulate(kernels.flash_fwd)
    eager = attend(q, k, v, use_causal_mask=False)
    jitted = jax.jit(lambda a: attend(a, k, v, use_causal_mask=False))(q)  # k and v aren't traced
    assert isinstance(jitted, tuple) and len(jitted) == 2
    for a, b in zip(eager, jitted, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@nki.jit
def copied(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, a)
    return out


copy = nki.simulate(copied)


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e4m3", "float8_e5m2", "int8"]
)
def test_low_precision_keeps_its_bits_with_and_without_jit(name):
    bits = jnp.arange(128, dtype=jnp.uint8).reshape(4, 32)
    x = jax.lax.bitcast_convert_type(bits.reshape(4, 16, 2), jnp.bfloat16)
    if name != "bfloat16":
        x = jax.lax.bitcast_convert_type(bits, getattr(jnp, name))
    for function in (copy, jax.jit(copy)):
        got = function(x.T)
        assert got.dtype == x.dtype
        assert np.asarray(got).tobytes() == np.asarray(x).T.tobytes()


def test_vmap_over_other_axes_and_some_arguments():
    rng = np.random.default_rng(3)
    a, b = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((4, 3, 6), (6, 5)))
    product = nki.simulate(kernels.matmul)
    got = jax.vmap(product, in_axes=(1, None), out_axes=1)(a, b)
    np.testing.assert_allclose(got, jnp.einsum("ibk,kj->ibj", a, b), rtol=1e-4, atol=1e-5)


def test_inside_a_loop_of_jax(x):
    got = jax.jit(lambda a: jax.lax.fori_loop(0, 3, lambda i, c: softmax(c * 3), a))(x)
    expected = x
    for _ in range(3):
        expected = jax.nn.softmax(expected * 3, axis=-1)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.slow
def test_gradients_under_vmap(x):
    batch, w = jnp.stack([x, -x]), jnp.arange(7.0)
    got = jax.vmap(jax.grad(loss), in_axes=(0, None))(batch, w)
    expected = jax.vmap(jax.grad(reference), in_axes=(0, None))(batch, w)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("inside", [lambda f: f, jax.jit, lambda f: lambda a: jax.vmap(f)(a[None])])
@pytest.mark.parametrize("wrt", [jax.grad, lambda f: lambda a: jax.jvp(f, (a,), (a,))])
def test_a_gradient_that_nobody_gave_is_an_error_that_says_how(x, inside, wrt):
    with pytest.raises(LaunchError, match=r"kernel softmax, whose derivative .*custom_vjp") as told:
        wrt(lambda a: inside(lambda b: softmax(b) * 2)(a).sum())(x)
    assert told.value.code == "no-derivative"


def test_inputs_without_a_gradient_are_no_matter(x):
    def loss_beside(a):
        return (softmax(jax.lax.stop_gradient(a)) * a).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(loss_beside))(x), softmax(x), rtol=1e-6)


@nki.jit
def increment(a):
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nisa.dma_copy(a, tile)
    return a


def test_kernels_that_write_their_inputs_are_refused(x):
    with pytest.raises(LaunchError, match="writes to its input a, but jax arrays can't change"):
        jax.jit(nki.simulate(increment))(x)


def test_mistakes_show_when_jax_traces(x):
    with pytest.raises(NkiValidationError, match="softmax takes"):
        jax.jit(softmax)(x[0])


def test_mistakes_at_run_time_reach_the_caller_with_their_line():
    @nki.jit
    def one_sided(a):
        tile = nl.load(a)
        if nl.program_id(0) == 0:
            nisa.sendrecv(src=tile, dst=tile, send_to_rank=1, recv_from_rank=1, pipe_id=0)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    with pytest.raises(Exception, match=r"DeadlockError: no core can go on[\s\S]*test_jax\.py:\d+"):
        jax.jit(nki.simulate(one_sided[2]))(jnp.ones((4, 4))).block_until_ready()


def test_a_profile_cannot_be_part_of_a_computation(x):
    with pytest.raises(LaunchError, match=r"nki.profile.*outside jax\.jit"):
        jax.jit(nki.profile(copied, host="inprocess"))(x)
    assert nki.profile(copied, host="inprocess")(x).outputs.shape == x.shape


def test_arrays_without_data_are_refused(x):
    gone = x + 0
    gone.delete()
    with pytest.raises(LaunchError, match=r"no data to run on.*deleted"):
        copy(gone)
    with pytest.raises(LaunchError, match=r"no data to run on.*key"):
        copy(jax.random.key(0))
