"""Kernels called inside jax transformations, where arguments are placeholders without data.

The kernel is compiled for the placeholders' shapes, which says what it returns; the launch becomes
a `jax.pure_callback`, so it happens when jax runs the computation, as often as jax likes.

Not done here: derivatives. jax asks for a `custom_vjp` around the kernel when it needs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.frameworks import jax_arrays, plain
from nki_dist.launcher.binding import Args, Kwargs
from nki_dist.launcher.world import World
from nki_dist.program import Access
from nki_dist.program.pytree import flatten, tree_map


def placeholders(args: Args, kwargs: Kwargs) -> bool:
    """Whether any argument, however deep inside the others, is a placeholder of jax."""
    if not jax_arrays.imported():
        return False
    leaves, _ = flatten((args, kwargs), jax_arrays.owns)
    return any(jax_arrays.is_tracer(leaf) for _, leaf in leaves)


def launch_traced(world: World, kernel: Any, args: Args, kwargs: Kwargs) -> Any:
    """What the kernel returns, as placeholders of the same transformation.

    Raises:
        LaunchError: the kernel writes to its inputs, which jax arrays don't allow.
        NkiError: the kernel doesn't compile for these shapes.
    """
    leaves, tree = flatten((args, kwargs), jax_arrays.owns)
    values = [leaf for _, leaf in leaves]
    holes = [n for n, value in enumerate(values) if jax_arrays.is_tracer(value)]
    tracers = [values[n] for n in holes]

    def filled(arrays: Sequence[Any]) -> Any:
        by_place = dict(zip(holes, arrays))
        return tree.unflatten(by_place.get(n, value) for n, value in enumerate(values))

    def run(*arrays: Any) -> Any:
        # As NumPy arrays: making jax arrays here would wait for the computation we are part of.
        new_args, new_kwargs = _on_host(filled(arrays))
        (results,) = world.run(kernel, *new_args, **new_kwargs)
        return tree_map(lambda v: plain(v) if isinstance(v, np.ndarray) else v, results)

    empty = [np.broadcast_to(np.zeros((), t.dtype), t.shape) for t in tracers]
    results = _results(world, kernel, *filled(empty))
    return jax_arrays.callback(kernel.fn.__name__, run, results, tracers)


def _on_host(tree: Any) -> Any:
    """jax arrays as NumPy arrays, so that results are NumPy arrays."""
    return tree_map(lambda v: np.asarray(v) if jax_arrays.owns(v) else v, tree, jax_arrays.owns)


def _results(world: World, kernel: Any, args: Args, kwargs: Kwargs) -> Any:
    """Shapes and dtypes of what the kernel returns."""
    compiled = world.compile(kernel, *args, **kwargs)
    if compiled.written_inputs:
        names = ", ".join(compiled.inputs[i].name for i in compiled.written_inputs)
        raise LaunchError(
            f"the kernel writes to its input {names}, but jax arrays can't change; return the "
            "tensor from the kernel instead",
            code="input-read-only",
        )

    def describe(leaf: Any) -> Any:
        if isinstance(leaf, Access):
            return jax_arrays.description(leaf.shape, leaf.dtype.storage)
        return leaf

    return tree_map(describe, compiled.outputs)
