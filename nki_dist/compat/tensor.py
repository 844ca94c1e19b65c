"""`nki.tensor`: the tensor class under its older module name."""

from nki_dist.language.tensor import NkiTensor

__all__ = ["NkiTensor"]
