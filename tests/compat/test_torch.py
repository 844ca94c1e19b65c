"""Kernels in PyTorch programs: tensors in and out, in modules, compiled, with a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels
from nki_dist.errors import LaunchError, NkiValidationError

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


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_results_are_rounded_once_and_strides_do_not_matter(name):
    dtype = getattr(torch, name)
    wide = torch.linspace(-3, 3, 8 * 15).reshape(8, 15)
    x = wide.to(dtype).t()[::2]
    got = scale(x, 0.3)
    assert got.dtype == dtype
    assert torch.equal(got.float(), (x.float() * 0.3).to(dtype).float())


def test_a_strided_low_precision_input_is_written_in_place():
    x = torch.zeros(4, 3, dtype=torch.bfloat16)
    nki.simulate(increment)(x.t()[:, ::2])
    assert torch.equal(x, torch.tensor([[1], [0], [1], [0]]).expand(4, 3).bfloat16())
    with pytest.raises(LaunchError, match="elements share memory"):
        nki.simulate(increment)(torch.ones(1, 4).expand(3, 4))


def test_results_do_not_change_when_the_kernel_runs_again():
    first = scale(torch.ones(2, 3), 2.0)
    scale(torch.zeros(2, 3), 2.0)
    assert torch.equal(first, torch.full((2, 3), 2.0))


def test_tensors_elsewhere_or_of_other_types_are_refused():
    with pytest.raises(LaunchError, match=r"shape \(3, 4\) on meta .* call \.cpu\(\)"):
        scale(torch.ones(3, 4, device="meta"), 2.0)
    with pytest.raises(LaunchError, match=r"layout torch\.sparse_coo"):
        scale(torch.eye(3).to_sparse(), 2.0)
    with pytest.raises(NkiValidationError, match=r"int64 .* Pass 32-bit integers"):
        scale(torch.arange(3).reshape(1, 3), 2.0)


def test_a_derivative_that_nobody_gave_is_an_error_not_zero():
    weight = torch.ones(3, 4, requires_grad=True)
    got = scale(weight, 2.0)
    assert got.requires_grad and torch.equal(got.detach(), torch.full((3, 4), 2.0))
    with pytest.raises(LaunchError, match="kernel scaled, whose derivative nobody gave"):
        (got * weight).sum().backward()
    with torch.no_grad():
        assert not scale(weight, 2.0).requires_grad
    assert not scale(weight.detach(), 2.0).requires_grad
    both = nki.simulate(kernels.rms_norm_backward)(weight, torch.ones(4), torch.ones(3, 4))
    with pytest.raises(LaunchError, match="kernel rms_norm_backward"):
        both[1].sum().backward()
    world = nki.World(ranks=2, host="inprocess")
    with pytest.raises(LaunchError, match="kernel scaled"):
        world.run(scaled, weight, 2.0)[1].sum().backward()


def test_a_tangent_is_refused_not_dropped():
    """Forward-mode differentiation takes a result without tangent for a constant."""
    forward_ad = torch.autograd.forward_ad

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return scale(x, 3.0)

        @staticmethod
        def jvp(ctx, tangent):
            return scale(tangent, 3.0)

    x, tangent = torch.rand(3, 4), torch.rand(3, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        with pytest.raises(LaunchError, match=r"tensor of shape \(3, 4\) with a tangent"):
            scale(dual, 3.0)
        assert torch.equal(scale(x, 3.0), 3 * x)
        assert torch.equal(forward_ad.unpack_dual(Scale.apply(dual)).tangent, 3 * tangent)


def test_inputs_that_require_gradients_are_written_under_no_grad_only():
    weight = torch.ones(3, 4, requires_grad=True)
    for tensor in (weight, weight * 1):
        with pytest.raises(LaunchError, match=r"requires gradients.*torch\.no_grad"):
            nki.simulate(increment)(tensor)
    with torch.no_grad():
        nki.simulate(increment)(weight)
    assert torch.equal(weight.detach(), torch.full((3, 4), 2.0))


def test_what_saved_a_written_tensor_notices():
    source = torch.ones(3, 4, requires_grad=True)
    saved = source * 2
    loss = (saved * saved).sum()
    with torch.no_grad():
        nki.simulate(increment)(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def record_in_export(function, x):
    class Exported(torch.nn.Module):
        def forward(self, a):
            return function(a)

    return torch.export.export(Exported(), (x,), strict=False)


def record_in_fx(function, x):
    return torch.fx.experimental.proxy_tensor.make_fx(function)(x)


@pytest.mark.parametrize("record", [torch.jit.trace, record_in_fx, record_in_export])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_recorders_would_keep_one_result_and_are_refused(record):
    with pytest.raises(LaunchError, match=r"inside .* record its result as a constant"):
        record(lambda a: scale(a, 2.0) + 1, torch.ones(3, 4))


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_torch_func_is_refused(transform):
    with pytest.raises(LaunchError, match=r"torch\.func"):
        getattr(torch.func, transform)(lambda a: scale(a, 2.0).sum())(torch.ones(2, 3))


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


def test_shapes_strides_and_types_may_change_between_compiled_calls():
    def function(a, factor):
        return (scale(a + 1, factor) * 3).relu()

    compiled = torch.compile(function, backend="aot_eager")
    torch.manual_seed(2)
    for shape in ((5, 6), (5, 6), (3, 6)):
        for x in (torch.randn(shape), torch.randn(shape).t(), torch.randn(shape).bfloat16()):
            torch.testing.assert_close(compiled(x, 0.7), function(x, 0.7), rtol=0, atol=0)


def test_compiled_functions_see_what_kernels_write():
    def function(a):
        nki.simulate(increment)(a)
        return a * 2

    x = torch.zeros(3, 4)
    got = torch.compile(function, backend="aot_eager")(x)
    assert torch.equal(x, torch.ones(3, 4)) and torch.equal(got, torch.full((3, 4), 2.0))


def test_fullgraph_is_refused_with_the_reason():
    compiled = torch.compile(lambda a: scale(a, 2.0), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="outside PyTorch's graphs; use fullgraph=False"):
        compiled(torch.ones(3, 4))


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


@pytest.mark.filterwarnings("ignore:Input .* requires gradient and is not a double")
def test_gradcheck_accepts_a_kernel():
    torch.manual_seed(0)
    x, weight = torch.randn(4, 6, requires_grad=True), torch.randn(6, requires_grad=True)
    # Kernels compute in float32, so steps are large and the limits follow from them.
    check = {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}
    assert torch.autograd.gradcheck(Norm.apply, (x, weight), **check)


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


def test_errors_name_the_callers_line_also_where_torch_compile_is_in_use():
    """Dynamo's frames then lie between the launch and its caller."""
    import torch._dynamo  # noqa: F401

    kept = []

    @nki.jit
    def kernel(x):
        kept.append(nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm))
        nl.store(kept[-1], nl.load(x))
        return kept[0]

    x = np.ones((2, 3), np.float32)
    nki.simulate(kernel)(x)
    with pytest.raises(nki.errors.CompileError, match="belongs to another launch") as caught:
        nki.simulate(kernel)(x)
    assert caught.value.location.startswith(__file__)
