"""Kernels that run as they are traced, so that Python in them sees values: `nki.debug`."""
