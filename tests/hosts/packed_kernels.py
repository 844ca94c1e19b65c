"""Kernels with packed types on both sides of the call."""

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


def _loaded(tensor):
    tile = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor)
    return tile


@nki.jit
def quantize(x, data, scales):
    """Writes to both arguments; `data` says which packed type. Returns a copy of it, too."""
    packed = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.sbuf)
    codes = nl.ndarray(scales.shape, dtype=scales.dtype, buffer=nl.sbuf)
    nisa.quantize_mx(dst=packed, src=_loaded(x), dst_scale=codes)
    nisa.dma_copy(dst=data, src=packed)
    nisa.dma_copy(dst=scales, src=codes)
    out = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=packed)
    return out


@nki.jit
def multiply(a, a_scales, b, b_scales):
    """Only packed types are taken, so the arrays must say what they are."""
    product = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(product, _loaded(a), _loaded(b), _loaded(a_scales), _loaded(b_scales))
    tile = nl.ndarray(product.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=product)
    out = nl.ndarray(product.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def show_and_return(x, path):
    """Prints `x`, returns it and the constant in a file."""
    tile = _loaded(x)
    nl.device_print("packed", tile)
    results = []
    for source in (tile, nl.shared_constant(path)):
        out = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=source)
        results.append(out)
    return tuple(results)
