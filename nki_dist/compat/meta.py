"""`nki.meta`: what this NKI is."""

version = "0.6"

__all__ = ["version"]
