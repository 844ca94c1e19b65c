"""Forms the sum of several matmuls as one product where instructions are run one by one.

The sum is formed anew as one product whenever somebody wants to see it, from copies of the operands
as each matmul found them, so its bits are those of `products`.
"""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import float32
from nki_dist.isa.kit import Kit
from nki_dist.isa.matmul import product
from nki_dist.isa.tensor_engine import Factors
from nki_dist.linking.chains import Chain, Member
from nki_dist.ops.calls import Step
from nki_dist.program import Access


class Running:
    """What a chain has multiplied so far.

    Args:
        chain: that is going on.
        kit: of the core.
    """

    def __init__(self, chain: Chain, kit: Kit) -> None:
        self._chain = chain
        self._kit = kit
        self._left: list[np.ndarray] = []
        self._right: list[np.ndarray] = []
        self._before: np.ndarray | None = None
        self._mask: np.ndarray | None = None

    def begin(self) -> None:
        """The first matmul is about to run: keep what its destination holds."""
        chain, kit = self._chain, self._kit
        self._left.clear()
        self._right.clear()
        if chain.mode != "replace":
            self._before = kit.view(chain.dst).copy()
        if chain.mode == "runtime":
            self._mask = kit.accumulating(chain.dst).copy()

    def add(self, factors: Factors) -> None:
        """Keep the operands of a matmul as they are now."""
        self._left.append(self._copy(factors.left, factors.rows))
        same = factors.right.same_elements(factors.left)
        copy = self._left[-1] if same else self._copy(factors.right, factors.rows)
        self._right.append(copy)

    def _copy(self, a: Access, rows: int) -> np.ndarray:
        view: np.ndarray = self._kit.view(a)
        if a.dtype is float32:
            return view.copy().reshape(rows, -1)
        copy = np.empty(a.shape, np.float32)
        self._kit.convert(a.dtype, float32)(copy, view)
        return copy.reshape(rows, -1)

    @property
    def several(self) -> bool:
        """Whether it is more than one matmul did by itself."""
        return len(self._left) > 1

    def settle(self) -> None:
        """Bring the sum to its destination."""
        dst, width = self._chain.dst, self._chain.columns
        rows = sum([len(part) for part in self._left])
        left = np.zeros((rows, width), np.float32)
        np.concatenate(self._left, out=left[:, : self._chain.width])
        right = np.concatenate(self._right)
        result = np.empty((width, right.shape[1]), np.float32)
        self._kit.begin()
        self._kit.step(product(left, right, result, self._kit))()
        part = result[: self._chain.width].reshape(dst.shape)
        if self._before is not None:
            where = True if self._mask is None else self._mask
            np.add(self._before, part, part, where=where)
        np.copyto(self._kit.view(dst), part)

    def wrapped(self, member: Member, step: Step) -> Step:
        """The step of one matmul, by itself: after the last one of the chain, dst holds its sum.

        What it holds until then is the sum of the single products, in float32 in the same order:
        nobody looks at it but those who watch a program.
        """
        members = self._chain.members

        def run() -> None:
            if member is members[0]:
                self.begin()
            self.add(member.factors)
            step()
            if member is members[-1]:
                self.settle()

        return run
