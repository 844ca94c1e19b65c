"""`nki.typing`: annotations of kernel parameters; they have no effect."""

from __future__ import annotations

from nki_dist.compat.beta1.typing import mutable_tensor, tensor

__all__ = ["mutable_tensor", "tensor"]
