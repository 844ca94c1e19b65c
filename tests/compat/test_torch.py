"""Kernels in PyTorch programs: tensors in and out, in modules, compiled, with a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels

torch: Any = pytest.importorskip("torch")


@nki.jit
def scaled(a, factor):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def copied(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, a)
    return out


@nki.jit
def increment(a):
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nisa.dma_copy(a, tile)


scale = nki.simulate(scaled)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32", "uint8"])
def test_tensors_come_back_as_tensors(name):
    x = torch.arange(15).reshape(3, 5).to(getattr(torch, name))
    got = nki.simulate(copied[2])(x)
    assert got.dtype == x.dtype and torch.equal(got, x)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_keep_their_bits(name):
    bits = torch.arange(256, dtype=torch.uint8).reshape(2, 128)
    x = bits.view(getattr(torch, name))
    got = nki.simulate(copied)(x)
    assert got.dtype == x.dtype and torch.equal(got.view(torch.uint8), bits)


def test_views_are_read_in_place_and_inputs_written_in_place():
    x = torch.arange(24.0).reshape(4, 6)
    assert torch.equal(scale(x.t()[1:, ::2], 2.0), 2 * x.t()[1:, ::2])
    version = x._version
    nki.simulate(increment)(x)
    assert torch.equal(x, torch.arange(24.0).reshape(4, 6) + 1) and x._version > version


class Model(torch.nn.Module):
    """A kernel between two layers; `factor` changes the compiled kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)

    def forward(self, x, factor):
        hidden = self.first(x).relu().detach()
        return self.last(scale(hidden, factor))


def test_a_compiled_module_gives_what_the_module_gives():
    torch.manual_seed(0)
    model = Model()
    compiled = torch.compile(model, backend="eager")
    for rows, factor in ((5, 2.0), (5, 3.0), (3, 3.0), (5, 2.0)):
        x = torch.randn(rows, 6)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, factor), model(x, factor))
    with torch.no_grad():  # data, not only shapes, reaches the kernel each time
        torch.testing.assert_close(compiled(2 * x, factor), model(2 * x, factor))
        assert not torch.equal(compiled(2 * x, factor), compiled(x, factor))


class Norm(torch.autograd.Function):
    """RMSNorm whose forward and backward are kernels."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return nki.simulate(kernels.rms_norm[2])(x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = nki.simulate(kernels.rms_norm_backward[2])(x, weight, dy.contiguous())
        return dx, dweight.to(weight.dtype)


def test_gradients_of_a_kernel_match_finite_differences():
    torch.manual_seed(0)
    x, weight = torch.randn(4, 6, requires_grad=True), torch.randn(6, requires_grad=True)
    mix = torch.randn(4, 6)
    (Norm.apply(x, weight) * mix).sum().backward()

    def loss(a: np.ndarray, w: np.ndarray) -> float:
        return float((a / np.sqrt((a**2).mean(1, keepdims=True) + 1e-6) * w * mix.numpy()).sum())

    values = [t.detach().numpy().astype(np.float64) for t in (x, weight)]
    for number, tensor in enumerate((x, weight)):
        for index in np.ndindex(values[number].shape):
            step = np.zeros_like(values[number])
            step[index] = 1e-5
            up, down = (
                [v + s * step if n == number else v for n, v in enumerate(values)] for s in (1, -1)
            )
            slope = (loss(*up) - loss(*down)) / 2e-5
            assert abs(float(tensor.grad[index]) - slope) < 1e-4


def test_gradients_flow_through_a_compiled_function():
    torch.manual_seed(1)
    x, weight = torch.randn(4, 6), torch.ones(6)

    def loss(a):
        return (Norm.apply(a * 2, weight) ** 3).sum()

    def gradient(function):
        a = x.clone().requires_grad_()
        function(a).backward()
        return a.grad

    torch.testing.assert_close(gradient(torch.compile(loss, backend="eager")), gradient(loss))
