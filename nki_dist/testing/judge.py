"""Judging what a kernel left behind: structure, shapes, dtypes, values, inputs and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from nki_dist import dtypes
from nki_dist.compiler.compiled import Compiled
from nki_dist.dtypes import DType
from nki_dist.testing.compare import Tolerance, box, compare
from nki_dist.testing.expected import Expected
from nki_dist.testing.report import Difference, Failure, Limits

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass
class Launched:
    """What one launch left, per rank.

    Attributes:
        outputs: by path, NumPy arrays and None.
        inputs: afterwards, in the order of the compiled kernel's.
    """

    outputs: list[dict[str, Any]]
    inputs: list[list[Array]]


@dataclass
class Verdict:
    """Failures and differences, collected."""

    failures: list[Failure] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def same_bits(a: Array, b: Array) -> Array:
    """Where two arrays of one dtype and shape have the same bits."""
    raw = dtypes.of(a.dtype).raw
    mine, other = (np.ascontiguousarray(x).view(raw).reshape(x.shape) for x in (a, b))
    return np.asarray(mine == other)


def unlike(first: Launched, second: Launched) -> list[tuple[int, str | int, Array]]:
    """(rank, path of an output or number of an input, where its bits differ) of two launches."""
    found = []
    for rank, (one, two) in enumerate(zip(_by_place(first), _by_place(second))):
        for where, array in one.items():
            other = two.get(where)
            if other is None or (other.shape, other.dtype) != (array.shape, array.dtype):
                found.append((rank, where, np.ones(array.shape, bool)))
            elif not (same := same_bits(array, other)).all():
                found.append((rank, where, ~same))
    return found


def _by_place(launched: Launched) -> list[dict[str | int, Array]]:
    """Per rank, what a launch left, by path of an output or number of an input."""
    return [
        {**{p: a for p, a in outputs.items() if a is not None}, **dict(enumerate(inputs))}
        for outputs, inputs in zip(launched.outputs, launched.inputs)
    ]


@dataclass
class Judge:
    """Judges one launch.

    Attributes:
        expected: of the reference.
        output_dtypes: that the user demands: one, a list with one per output, or None.
        tolerance: that the user gives.
        compiled: the kernel.
        writes: parameters that it may write.
        launched: what it left.
        unstored: marks, by rank and output or input, of elements that no launch stored.
    """

    expected: Expected
    output_dtypes: Any
    tolerance: Tolerance
    compiled: Compiled
    writes: Sequence[str]
    launched: Launched
    unstored: Mapping[tuple[int, str | int], Array]
    verdict: Verdict = field(default_factory=Verdict)

    def judge(self) -> Verdict:
        """Compare the launch with the reference."""
        for rank, outputs in enumerate(self.launched.outputs):
            self._outputs(rank, outputs)
        for rank, inputs in enumerate(self.launched.inputs):
            for index, signature in enumerate(self.compiled.inputs):
                if root(signature.name) in self.writes:
                    name = f"argument {signature.name}{self._of(rank)}"
                    want = self.expected.written[rank][index]
                    self._values(name, rank, index, inputs[index], want)
        self.verdict.differences.sort(key=lambda d: -d.share)
        return self.verdict

    def _of(self, rank: int) -> str:
        """What names have to say of a rank."""
        return f" of rank {rank}" if len(self.launched.outputs) > 1 else ""

    def _outputs(self, rank: int, outputs: dict[str, Any]) -> None:
        failures = self.verdict.failures
        returned, meant = (
            {path: leaf for path, leaf in each.items() if leaf is not None}
            for each in (outputs, self.expected.outputs[rank])
        )
        if list(returned) != list(meant):
            failures.append(
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
            allowed = self._allowed(n, want.dtype)
            if dtypes.of(got.dtype) not in allowed:
                failures.append(self._wrong_dtype(name, got, want, allowed))
            elif got.shape != want.shape:
                failures.append(
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
            self.verdict.failures.append(_never_stored(name, missing))
            skipped |= missing
        result = compare(
            name,
            got,
            np.ma.getdata(want),
            skipped,
            self.tolerance,
            lambda change: self.expected.moved(rank, where, change),
        )
        if result.difference is not None:
            self.verdict.differences.append(result.difference)
        if result.failure is not None:
            self.verdict.failures.append(result.failure)

    @property
    def _float_dtypes(self) -> list[DType]:
        """Of the inputs."""
        return list(dict.fromkeys(s.dtype for s in self.compiled.inputs if s.dtype.is_float))

    def _allowed(self, n: int, reference: np.dtype[Any]) -> list[DType]:
        """Which dtypes an output may have."""
        given = self.output_dtypes
        if given is not None:
            several = isinstance(given, (list, tuple))
            return [dtypes.of(given[n] if several else given)]
        if reference == np.float64:
            # The reference computed in float64 and says nothing of what is returned.
            return self._float_dtypes or [d for d in dtypes.ALL if d.is_float]
        if reference in (np.int64, np.uint64):
            return [d for d in dtypes.ALL if d.is_integer]
        if reference == np.bool_:
            return [d for d in dtypes.ALL if d.is_integer or d.kind == "bool"]
        return [dtypes.of(reference)]

    def _wrong_dtype(self, name: str, got: Array, want: Array, allowed: list[DType]) -> Failure:
        names = " or ".join(d.name for d in allowed)
        if self.output_dtypes is not None:
            reason = "as output_dtypes says"
        elif want.dtype == np.float64 and self._float_dtypes:
            reason = "as the inputs are"
        else:
            reason = f"the reference's is {want.dtype}"
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
    compiled: Compiled, before: Sequence[Sequence[Array]], after: Launched, writes: Sequence[str]
) -> list[Failure]:
    """Inputs that the kernel wrote, or that changed however, without permission."""
    found = []
    for index, signature in enumerate(compiled.inputs):
        if root(signature.name) in writes:
            continue
        changed = [~same_bits(b[index], a[index]) for b, a in zip(before, after.inputs)]
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
    per_partition = " per partition"
    for what, got, most, unit in (
        ("SBUF", peak(compiled, "sbuf"), limits.sbuf_bytes, per_partition),
        ("PSUM", peak(compiled, "psum"), limits.psum_bytes, per_partition),
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
