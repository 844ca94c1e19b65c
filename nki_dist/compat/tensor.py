"""`nki.meta.tensor`, formerly `nki.tensor`: the tensor class under these module names."""

from nki_dist.language.tensor import NkiTensor

__all__ = ["NkiTensor"]
