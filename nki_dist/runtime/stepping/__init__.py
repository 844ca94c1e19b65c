"""Kernels that run while they are traced, so that Python in them sees values: `nki.debug`.

`trace` hands each instruction to a `machine`; cores take turns (`turns`).
"""
