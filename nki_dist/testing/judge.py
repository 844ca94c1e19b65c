"""Judging what a kernel left behind: structure, shapes, dtypes, values, inputs and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist import dtypes
from nki_dist.compiler.compiled import Compiled
from nki_dist.dtypes import DType
from nki_dist.testing.compare import Tolerance, box, compare, same_bits
from nki_dist.testing.expected import Expected, Left
from nki_dist.testing.report import Difference, Failure, Limits

Array: TypeAlias = "np.ndarray[Any, Any]"

# What an output may be where the reference's dtype is one that NumPy computes in by itself.
_KINDS: Final = {"float64": ("float",), "int64": ("int", "uint"), "uint64": ("int", "uint")} | {
    "bool": ("int", "uint", "bool")
}


def unlike(first: Sequence[Left], second: Sequence[Left]) -> dict[tuple[int, str | int], Array]:
    """Where bits of two launches differ, by rank and path of an output or number of an input."""
    found = {}
    for rank, (one, two) in enumerate(zip(first, second)):
        for where, array in one.items():
            other = two.get(where)
            if other is None or (other.shape, other.dtype) != (array.shape, array.dtype):
                found[rank, where] = np.ones(array.shape, bool)
            elif not (same := same_bits(array, other)).all():
                found[rank, where] = ~same
    return found


@dataclass
class Judge:
    """Judges one launch.

    Attributes:
        expected: of the reference.
        output_dtypes: that the user demands: one, a list with one per output, or None.
        tolerance: that the user gives.
        compiled: the kernel.
        writes: parameters that it may write.
        launched: what it left, per rank.
        unstored: marks, by rank and output or input, of elements that no launch stored.
    """

    expected: Expected
    output_dtypes: Any
    tolerance: Tolerance
    compiled: Compiled
    writes: Sequence[str]
    launched: Sequence[Left]
    unstored: Mapping[tuple[int, str | int], Array]
    failures: list[Failure] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def judge(self) -> tuple[list[Failure], list[Difference]]:
        """Compare the launch with the reference: what is wrong, and how far outputs are off."""
        for rank in range(len(self.launched)):
            self._outputs(rank)
        for rank, got in enumerate(self.launched):
            for index, signature in enumerate(self.compiled.inputs):
                if root(signature.name) in self.writes:
                    name = f"argument {signature.name}{self._of(rank)}"
                    self._values(name, rank, index, got[index], self.expected.left[rank][index])
        self.differences.sort(key=lambda d: -d.share)
        return self.failures, self.differences

    def _of(self, rank: int) -> str:
        """What names have to say of a rank."""
        return f" of rank {rank}" if len(self.launched) > 1 else ""

    def _outputs(self, rank: int) -> None:
        returned, meant = (
            {path: array for path, array in left[rank].items() if isinstance(path, str)}
            for left in (self.launched, self.expected.left)
        )
        if list(returned) != list(meant):
            self.failures.append(
                Failure(
                    "wrong-structure",
                    f"the kernel returns {_structure([*returned])}{self._of(rank)}, the reference "
                    f"{_structure([*meant])}",
                    "both must return as many arrays, in equal tuples, lists or dicts",
                )
            )
            return
        for n, (path, want) in enumerate(meant.items()):
            name, got = f"output{path}{self._of(rank)}", returned[path]
            allowed, reason = self._allowed(n, want.dtype)
            if dtypes.of(got.dtype) not in allowed:
                self.failures.append(self._wrong_dtype(name, got, allowed, reason))
            elif got.shape != want.shape:
                self.failures.append(
                    Failure(
                        "wrong-shape",
                        f"{name} has shape {got.shape}, the reference's {want.shape}",
                        numbers={"got": list(got.shape), "wanted": list(want.shape)},
                    )
                )
            else:
                self._values(name, rank, path, got, want)

    def _values(self, name: str, rank: int, where: str | int, got: Array, want: Array) -> None:
        if not got.size:
            return
        skipped = np.ma.getmaskarray(want).copy()
        never = self.unstored.get((rank, where))
        if never is not None and (missing := never & ~skipped).any():
            self.failures.append(_never_stored(name, missing))
            skipped |= missing
        difference, failure = compare(
            name,
            got,
            np.ma.getdata(want),
            skipped,
            self.tolerance,
            lambda change: self.expected.moved(rank, where, change),
        )
        if difference is not None:
            self.differences.append(difference)
        if failure is not None:
            self.failures.append(failure)

    def _allowed(self, n: int, reference: np.dtype[Any]) -> tuple[list[DType], str]:
        """Which dtypes an output may have, and why."""
        given = self.output_dtypes
        if given is not None:
            several = isinstance(given, (list, tuple))
            return [dtypes.of(given[n] if several else given)], "as output_dtypes says"
        floats = list(dict.fromkeys(s.dtype for s in self.compiled.inputs if s.dtype.is_float))
        if reference == np.float64 and floats:
            # The reference computed in float64 and says nothing of what is returned.
            return floats, "as the inputs are"
        kinds = _KINDS.get(reference.name)
        found = [d for d in dtypes.ALL if d.kind in kinds] if kinds else [dtypes.of(reference)]
        return found, f"the reference's is {reference}"

    def _wrong_dtype(self, name: str, got: Array, allowed: list[DType], reason: str) -> Failure:
        names = " or ".join(d.name for d in allowed)
        return Failure(
            "wrong-dtype",
            f"{name} is {dtypes.of(got.dtype).name}; allowed: {names}, {reason}",
            "say output_dtypes=... if that is meant" if self.output_dtypes is None else None,
            numbers={"got": dtypes.of(got.dtype).name, "allowed": [d.name for d in allowed]},
        )


def _structure(paths: list[str]) -> str:
    if not paths:
        return "nothing"
    if paths == [""]:
        return "one array"
    return f"{len(paths)} arrays ({', '.join(paths)})"


def _never_stored(name: str, missing: Array) -> Failure:
    count = int(np.count_nonzero(missing))
    return Failure(
        "never-stored",
        f"{count:,} of {missing.size:,} elements of {name} depend on what memory held before the "
        f"launch, all of them in {box(missing)}: they were never stored, or computed from what was "
        "never written",
        "store every element; a last block that isn't full needs its own size",
        numbers={"wrong": count, "elements": missing.size},
    )


# ---- what is the same for any reference ---------------------------------------------------------


def root(name: str) -> str:
    """The parameter that an input's name begins with: `caches[0].k` belongs to `caches`."""
    found = re.match(r"\w+", name)
    return found.group() if found else name


def changed_inputs(
    compiled: Compiled,
    before: Sequence[Sequence[Array]],
    after: Sequence[Left],
    writes: Sequence[str],
) -> list[Failure]:
    """Inputs that the kernel wrote, or that changed however, without permission."""
    found = []
    for index, signature in enumerate(compiled.inputs):
        if root(signature.name) in writes:
            continue
        changed = [~same_bits(b[index], a[index]) for b, a in zip(before, after)]
        count = int(sum(np.count_nonzero(mask) for mask in changed))
        if count:
            mask = next(mask for mask in changed if mask.any())
            what = f"{count:,} elements of argument {signature.name} changed, in {box(mask)}"
        elif index in compiled.written_inputs:
            what = f"the kernel stores to argument {signature.name}, here with the values it had"
        else:
            continue
        found.append(
            Failure(
                "input-changed",
                what,
                f"store to a tensor of its own, or say writes=({root(signature.name)!r},) if the "
                "kernel is to update it",
                numbers={"wrong": count},
            )
        )
    return found


def hbm_bytes(compiled: Compiled) -> int:
    """Of a rank's HBM, apart from the inputs: shared tensors and private ones alive at once."""
    shared = sum(s.nbytes for s in compiled.shared if s.role == "shared")
    return int(shared + sum(p.facts["peak_hbm"] for p in compiled.programs))


def peak(compiled: Compiled, region: str) -> int:
    """Bytes per partition alive at once in SBUF or PSUM, the largest of all cores."""
    return int(max(p.facts[f"peak_{region}"] for p in compiled.programs))


def beyond(limits: Limits, time_us: float, compiled: Compiled) -> list[Failure]:
    """Limits that a launch didn't keep."""
    found = []
    if limits.time_us is not None and time_us > limits.time_us:
        found.append(
            Failure(
                "too-slow",
                f"{time_us:,.3f} us simulated; allowed: {limits.time_us:,.3f} us",
                "nki.profile(kernel) shows what the time is spent on",
                numbers={"got": time_us, "most": limits.time_us},
            )
        )
    for what, got, most, unit in (
        ("SBUF", peak(compiled, "sbuf"), limits.sbuf_bytes, " per partition"),
        ("PSUM", peak(compiled, "psum"), limits.psum_bytes, " per partition"),
        ("HBM", hbm_bytes(compiled), limits.hbm_bytes, " apart from the inputs"),
    ):
        if most is not None and got > most:
            found.append(
                Failure(
                    "too-much-memory",
                    f"{got:,} bytes of {what} in use at once{unit}; allowed: {most:,}",
                    numbers={"memory": what, "got": got, "most": most},
                )
            )
    return found
