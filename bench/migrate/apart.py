"""Today's kernels with the order of additions of Beta 1's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from nki_dist.linking.chains import Chains


@contextmanager
def products_apart() -> Iterator[None]:
    """Form products that add to one tile of PSUM one by one, as those of Beta 1's kernels are."""
    init = Chains.__init__

    def apart(self: Chains, arch: Any, ended: Any, beta1: bool, *others: Any) -> None:
        init(self, arch, ended, True, *others)

    with mock.patch.object(Chains, "__init__", apart):
        yield
