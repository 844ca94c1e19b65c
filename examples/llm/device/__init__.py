"""Kernels of the language model, a file for each part; `layer.py` puts a layer together."""
