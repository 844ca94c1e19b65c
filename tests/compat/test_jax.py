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


def test_a_gradient_that_nobody_gave_is_refused_by_jax(x):
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.grad(lambda a: softmax(a).sum())(x)


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
