"""`nki-dist nccom-test --check`: an operation on real ranks with real data, compared with NumPy.

Each size is a launch in this process on the ranks of the plan; the expected output is worked out
with NumPy from all inputs, in integers or float64. What is only moved must be the same bits. A sum
of floats may differ by the rounding of float32 additions and of its type; ranks of a group must
agree in every bit. Where the plan leaves ranks of an instance out, they run the same operation
among themselves, because every rank of a world must.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch as architectures
from nki_dist.cli.nccom_test.golden import goldens
from nki_dist.cli.nccom_test.plan import Groups, Plan
from nki_dist.cli.shared.command import refused
from nki_dist.collectives.choose import VARIABLE
from nki_dist.dtypes.npy import save_array
from nki_dist.errors import CompilerMayRejectWarning

Array: TypeAlias = "np.ndarray[Any, Any]"


@nki.jit
def _operation(x: Any, begun: Any, meta: Any, opcode: str, groups: Any, pairs: Any) -> Any:
    """One collective from `x` to a result of the shape of `begun`, whose contents it begins with.

    Core 0 fills the rank's tensors; the collective waits for both cores.
    """
    src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    dst = nl.ndarray(begun.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    counts = nl.ndarray(meta.shape, dtype=meta.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:  # type: ignore[no-untyped-call]
        nisa.dma_copy(dst=src, src=x)
        nisa.dma_copy(dst=dst, src=begun)
        nisa.dma_copy(dst=counts, src=meta)
    every: dict[str, Any] = {"srcs": [src], "dsts": [dst]}
    if opcode == "collective_permute":
        ncc.collective_permute(**every, source_target_pairs=pairs)
        return dst
    every["replica_group"] = ncc.ReplicaGroup(groups)
    if opcode in ("all_to_all_v", "all_gather_v"):
        getattr(ncc, opcode)(**every, metadata_tensor=counts, recv_counts_known=True)
    elif opcode == "all_reduce":
        ncc.all_reduce(**every, op=nl.add)
    elif opcode == "reduce_scatter":
        ncc.reduce_scatter(**every, collective_dim=0, op=nl.add)
    else:
        getattr(ncc, opcode)(**every, collective_dim=0)
    return dst


class Checker:
    """Checks the sizes of a plan.

    Args:
        fill: "random" or "all_ones".
        seed: of random data.
        limit: bytes of the inputs and outputs of all ranks; larger sizes aren't checked.
    """

    def __init__(self, plan: Plan, fill: str, seed: int, limit: int) -> None:
        self.plan = plan
        self._fill, self._seed, self._limit = fill, seed, limit

    def check_world(self) -> None:
        """Refuse what no world can be made of, before anything is printed.

        Raises:
            LaunchError: the platform has no worlds, or ranks are left over.
        """
        arch = self.plan.topology.arch
        if architectures.get(arch.instance).chips_per_instance != arch.chips_per_instance:
            raise refused(
                f"--check with --platform {arch.instance}-gen2: no world can be made of it; "
                "leave --check out"
            )
        self._all_groups()

    def nbytes(self, size: int) -> int:
        """Inputs and outputs of all ranks."""
        return self.plan.topology.ranks * sum(self.plan.counts(size)) * self.plan.dtype.itemsize

    def run(self, sizes: Sequence[int], note: Callable[[str], None]) -> dict[str, Any]:
        """Check the sizes that fit; says on the way what is wrong.

        Returns:
            {"fill", "seed", "checked": sizes, "not_checked": sizes, "wrong": messages}.

        Raises:
            NkiError: an operation can't be carried out.
        """
        fitting = [size for size in sizes if self.nbytes(size) <= self._limit]
        wrong = []
        with self._world() as world:
            for size in fitting:
                message = self._check(world, size)
                if message:
                    wrong.append(f"size {size}: {message}")
                    note(wrong[-1])
        left = [size for size in sizes if size not in fitting]
        if fitting:
            right = f"{len(fitting) - len(wrong)} of {len(fitting)}"
            note(f"{self._fill} data, seed {self._seed}: {right} sizes are right")
        if left:
            note(
                f"not checked: {', '.join(map(str, left))} bytes, whose tensors take up to "
                f"{self.nbytes(left[-1])} bytes on all ranks; see --check-limit"
            )
        return {
            "fill": self._fill,
            "seed": self._seed,
            "checked": fitting,
            "not_checked": left,
            "wrong": wrong,
        }

    @contextmanager
    def _world(self) -> Iterator[nki.World]:
        """The plan's ranks in this process, with the algorithm that was asked for."""
        t = self.plan.topology
        before = os.environ.get(VARIABLE)
        if self.plan.algorithm:
            os.environ[VARIABLE] = self.plan.algorithm
        try:
            with nki.World(
                ranks=t.ranks, lnc=t.lnc, platform=t.arch.instance, host="inprocess"
            ) as world:
                yield world
        finally:
            os.environ.pop(VARIABLE, None)
            if before is not None:
                os.environ[VARIABLE] = before

    def _check(self, world: nki.World, size: int) -> str:
        """What is wrong with the results of one size; empty if nothing is."""
        plan, (read, written) = self.plan, self.plan.counts(size)
        inputs = [self._data(rank, read) for rank in range(plan.topology.ranks)]
        begun = np.zeros(written, plan.dtype.dtype)
        groups = self._all_groups()
        with warnings.catch_warnings():
            # nccom-test allows pairs that aren't one ring, and says so in its guide.
            warnings.simplefilter("ignore", CompilerMayRejectWarning)
            outputs = world.run(
                _operation,
                nki.per_rank(inputs),
                begun,
                self._counts(read),
                plan.op.opcode,
                [list(group) for group in groups],
                [list(pair) for pair in plan.pairs],
            )
        return self._compare(inputs, outputs, size)

    def _counts(self, read: int) -> Array:
        """The metadata tensor of all_to_all_v and all_gather_v: equal parts of `read` elements."""
        parts = self.plan.ranks if self.plan.op.opcode == "all_to_all_v" else 1
        rows = np.zeros((3, self.plan.ranks), np.uint32)
        rows[0, :parts] = read // parts
        rows[1, :parts] = np.arange(parts) * (read // parts)
        return rows

    def _data(self, rank: int, count: int) -> Array:
        dtype = self.plan.dtype
        if self._fill == "all_ones":
            return np.ones(count, dtype.dtype)
        rng = np.random.default_rng([self._seed, rank])
        if dtype.is_integer:
            return rng.integers(int(dtype.min), int(dtype.max), count, dtype.dtype, endpoint=True)
        return rng.standard_normal(count, np.float32).astype(dtype.dtype)

    def _all_groups(self) -> Groups:
        """Those of the plan, and like ones of the ranks that it leaves out.

        Raises:
            LaunchError: those can't be given groups of the same form.
        """
        plan = self.plan
        each = len(plan.workers) // plan.topology.instances
        idle = plan.topology.ranks_per_instance % each
        if plan.op.paired or len(plan.workers) == plan.topology.ranks:
            return plan.groups
        if idle:
            raise refused(
                f"--check with {each} ranks on each instance, which has "
                f"{plan.topology.ranks_per_instance}: the others can't form groups like theirs; "
                "choose -r and -N so that it is a multiple, or leave --check out"
            )
        shifts = range(0, plan.topology.ranks_per_instance, each)
        return tuple(tuple(r + shift for r in group) for shift in shifts for group in plan.groups)

    def _compare(self, inputs: list[Array], outputs: list[Array], size: int) -> str:
        plan = self.plan
        for golden in goldens(plan, inputs, plan.counts(size)[1]):
            output = outputs[golden.rank]
            at = golden.differs(output)
            if at is not None:
                arrays = {"input": inputs[golden.rank], "output": output, "golden": golden.values}
                return (
                    f"rank {plan.workers.index(golden.rank)} has {float(output[at])} at element "
                    f"{at}, expected {golden.values[at]}; its tensors are in {_save(arrays)}"
                )
        if plan.op.opcode in ("all_reduce", "all_gather"):
            for group in plan.groups:
                if len({outputs[rank].tobytes() for rank in group}) > 1:
                    return "ranks of a group end with different bits"
        return ""


def _save(arrays: Mapping[str, Array]) -> Path:
    """Write arrays into a new folder."""
    folder = Path(tempfile.mkdtemp(prefix="nccom_test_check_"))
    for name, array in arrays.items():
        save_array(folder / f"{name}.npy", array)
    return folder
