"""What worlds offer for tensors that stay in HBM: `put`, `residents`, `wait`, and launches on them.

Launches with a DeviceTensor among their arguments are carried out in a row on Ray (`row`), and at
once where nobody gains by that: in this process, in tests, on the host "debug", with a profile.
Where a launch needs its arguments' values here (a debugged or observed one, NKI_PRECISE_FP=0, or
one that may have to be made again), it gets them by value, and what it writes is put back.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nki_dist import dtypes
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError
from nki_dist.hbm.layout import CACHED_LAYOUTS, EMPTY, as_array
from nki_dist.launcher.binding import Args, BoundArguments, Kwargs, PerRank, is_array
from nki_dist.launcher.deferred import settled
from nki_dist.launcher.device_tensor import DeviceTensor, values_by_rank
from nki_dist.launcher.estimates import has_loops, reports_of
from nki_dist.launcher.findings import tell
from nki_dist.launcher.hosted import Hosted
from nki_dist.launcher.recording import copied
from nki_dist.launcher.residence import restorer
from nki_dist.launcher.resident_launch import ResidentLaunch
from nki_dist.launcher.sequence import Sequence as Sequence_
from nki_dist.launcher.session import session
from nki_dist.launcher.specs import SpecArguments
from nki_dist.launcher.tensor_spec import TensorSpec
from nki_dist.launcher.tracebacks import leaves_package
from nki_dist.program.pytree import flatten, tree_map
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.hosts import LaunchResult
from nki_dist.timing import COMPILED, check_schedule

IN_TEST: Final = "PYTEST_CURRENT_TEST"  # in whose environment an error belongs to its line


class Resident(Hosted):
    """See the module's docstring."""

    _dried: dict[str, list[CoreReport]]  # of kernels that ran without values, by name
    _compiled: Callable[..., tuple[list[BoundArguments], str, Compiled]]
    _sessions: weakref.WeakSet[Sequence_] | None  # once there was one

    @leaves_package
    def put(self, value: Any, name: str | None = None, restore: Any = False) -> DeviceTensor:
        """Put a tensor into the HBM of each rank.

        Args:
            value: an array, the same for all ranks; `nki.per_rank(...)`; in a dry world also a
                TensorSpec. It is copied.
            name: for messages and `residents()`.
            restore: whether it is put again, as long as nothing has written it, when its memory was
                lost with a node or with Ray: True keeps a copy here; a function without arguments
                is asked for the value again.

        Raises:
            OutOfMemoryError: it doesn't fit into the HBM of a rank, or the host has no memory.
            LaunchError: it is no array, or ranks differ in shape or dtype.
        """
        self._refuse_closed()
        name = name or f"tensor {session().next_number('tensor')}"
        if isinstance(value, TensorSpec):
            if not self.dry:
                raise LaunchError(
                    f"a TensorSpec for tensor {name}, which would have no values; pass an array, "
                    "or make the world dry: nki.World(dry=True)",
                    location=users_line(),
                    code="tensor-kind",
                )
            return self._put(tuple(value.shape), dtypes.of(value.dtype), name, None, None)
        values = values_by_rank(value, self.ranks, name)
        first = as_array(values[0])
        shape, dtype = first.shape, dtypes.of(first.dtype)
        if self.dry:
            return self._put(shape, dtype, name, None, None)
        again = restorer(values, restore, self.ranks, name)
        return self._put(shape, dtype, name, values, again)

    def _put(self, shape: Any, dtype: Any, name: str, values: Any, restore: Any) -> DeviceTensor:
        if session().checker is not None and not self.dry:  # nothing runs
            tensor = DeviceTensor(shape, dtype, name, self.residence)
            tensor._values = [np.array(as_array(v)) for v in values]
            return tensor
        self._row.drain()
        with self._lock:
            return self.residence.put(shape, dtype, name, values, restore)

    def residents(self) -> list[DeviceTensor]:
        """The tensors that are in the ranks' HBM, the largest first."""
        with self._lock:
            return self.residence.tensors()

    @property
    def hbm_capacity(self) -> int:
        """Bytes of HBM that each rank has: its cores' share of their HBM stack."""
        return self.residence.capacity

    @leaves_package
    def wait(self) -> None:
        """Return when all launches have ended.

        Raises:
            NkiError: the first error of a launch that nobody has seen.
        """
        self._row.drain()
        try:
            self._row.raise_first()
        finally:
            with self._lock:
                self.residence.told()

    def _looked_at(
        self, checker: Any, kernel: Any, grid: Grid | None, args: Args, kwargs: Kwargs, alone: bool
    ) -> tuple[Any, Any]:
        """A launch that is only looked at, and what stands for what it returns to each rank."""
        given, given_too = self._arrays_for(args, kwargs)
        look = checker.launch(self, kernel, grid, given, given_too)
        before, after = (*args, *kwargs.values()), (*given, *given_too.values())
        if all(a is b for a, b in zip(before, after)):
            return look, look.outputs
        return look, _in_kind(self._as_tensors(look.outputs, look.name, alone), alone)

    # ---- launches --------------------------------------------------------------------------------

    def _run_resident(
        self,
        key: str,
        compiled: Compiled,
        bound: Sequence[BoundArguments],
        alone: bool,
        now: bool,
    ) -> tuple[Any, LaunchResult | None, Compiled]:
        """A launch with DeviceTensors: what it returns, and what is left of it if it has ended.

        Args:
            alone: whether it is made outside of a world.
            now: whether it is waited for.
        """
        tensors = resident(bound[0])
        self._at_home(tensors, alone)
        if compiled.warnings or compiled.unstored:
            tell([*compiled.warnings, *compiled.unstored])
        arrays_written = any(n not in tensors for n in compiled.written_inputs)
        here = self.host_name != "ray" or bool(os.environ.get(IN_TEST))
        at_once = now or arrays_written or here
        bound = settled(bound)
        if not at_once:
            others = [n for n in range(len(bound[0].arrays)) if n not in tensors]
            copies = copied([[b.arrays[n] for n in others] for b in bound])
            bound = [_with_values(b, dict(zip(others, of))) for b, of in zip(bound, copies)]
        line = None if at_once else users_line()
        launch = ResidentLaunch(self, key, compiled, bound, tensors, line, alone)
        if not at_once:
            if self._host is None:  # a program that is about to end can't start it any more
                self.start()
            self._row.add(launch)
        else:
            self.wait()
            try:
                launch()
            finally:
                self.residence.told()
        return _in_kind(launch.outputs, alone), launch.result, compiled

    def _needs_values(self, compiled: Compiled) -> bool:
        looked_at = session().observer is not None
        return looked_at or bool(compiled.as_run.wide) or compiled.undecided

    def _at_home(self, tensors: Mapping[int, DeviceTensor], alone: bool) -> None:
        """See that they are in the HBM of this world, and not freed, before anything is queued."""
        for tensor in tensors.values():
            tensor._refuse_freed()
            if tensor._home is self.residence:
                continue
            if alone and tensor._alone:
                self.residence.adopt(tensor)
                continue
            whose = "was made outside of a world" if tensor._alone else "is in another world"
            raise LaunchError(
                f"tensor {tensor.name} {whose}, and a launch works on the HBM of its own ranks",
                location=users_line(),
                code="tensor-world",
                hint="put its values there: world.put(tensor.numpy()), or, if it has several "
                "ranks, world.put(nki.per_rank(tensor.numpy()))",
            )

    def _by_value(
        self,
        run: Callable[[list[BoundArguments]], tuple[list[Any], LaunchResult, Compiled]],
        bound: list[BoundArguments],
        alone: bool,
    ) -> tuple[Any, LaunchResult, Compiled]:
        """A launch that copies: the values of DeviceTensors here, and what it made back to HBM.

        Args:
            run: carries it out.
        """
        if not bound[0].stays:
            return run(bound)
        tensors = resident(bound[0])
        self._at_home(tensors, alone)
        values = {n: self.residence.read(t) for n, t in tensors.items()}
        given = settled(bound)
        outputs, result, compiled = run(
            [_with_values(b, {n: v[r] for n, v in values.items()}) for r, b in enumerate(given)]
        )
        for n in compiled.written_inputs:
            if n in tensors:
                self.residence.write(tensors[n], values[n])
        returned = self._as_tensors(outputs, compiled.kernel, alone)
        return _in_kind(returned, alone), result, compiled

    def _as_tensors(self, outputs: Sequence[Any], kernel: str, alone: bool) -> Any:
        """One tree with DeviceTensors of what every rank returned."""
        flat = [flatten(out, is_array) for out in outputs]
        results: list[Any] = []
        count = 0
        for leaves in zip(*([leaf for _, leaf in found] for found, _ in flat), strict=True):
            result = leaves[0]
            if is_array(result):
                values = [np.asarray(leaf) for leaf in leaves]
                name, dtype = f"{kernel}.{count}", dtypes.of(values[0].dtype)
                result = self._put(values[0].shape, dtype, name, values, None)
                result._alone = alone
                count += 1
            results.append(result)
        return flat[0][1].unflatten(results)

    @leaves_package
    def session(self, gap_us: float | None = None, schedule: str = COMPILED) -> Sequence_:
        """All launches from here on, on one line of simulated time, while it is open.

        Args:
            gap_us: microseconds between a launch's end and the next one's start; None for what AWS
                has published, with its band.
            schedule: "compiled" or "program"; see `nki.profile`.

        Returns:
            A context manager with `.launches`, `.device_us`, `.low_us`, `.high_us`, `.advice()`,
            `.write_report(path)` and `.write_trace(path)`.
        """
        sequence = Sequence_(self, gap_us, check_schedule(schedule))
        if self._sessions is None:
            self._sessions = weakref.WeakSet()
        self._sessions.add(sequence)
        return sequence

    @property
    def sessions(self) -> list[Sequence_]:
        """Those that are open."""
        return [s for s in self._sessions or () if s.open]

    @staticmethod
    def note(sessions: Sequence[Sequence_], compiled: Compiled, result: LaunchResult) -> None:
        """A launch has ended, which belongs to these."""
        for session_ in sessions:
            session_.add(compiled.kernel, compiled, result.reports, result.programs)

    # ---- where no values are ---------------------------------------------------------------------

    def _arrays_for(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Arguments with arrays, or TensorSpecs in a dry world, in place of DeviceTensors."""

        def of(value: Any) -> Any:
            leaves, _ = flatten(value, _leaf)
            found = [leaf for _, leaf in leaves if isinstance(leaf, DeviceTensor)]
            if not found:
                return value
            if self.dry:
                specs = {id(t): TensorSpec(t.shape, t.dtype) for t in found}
                return tree_map(lambda leaf: specs.get(id(leaf), leaf), value, _leaf)
            values = {id(t): t._read() for t in found}

            def on(rank: int) -> Any:
                def take(leaf: Any) -> Any:
                    return values[id(leaf)][rank] if id(leaf) in values else leaf

                return tree_map(take, value, _leaf)

            return on(0) if self.ranks == 1 else PerRank([on(rank) for rank in range(self.ranks)])

        return tuple(map(of, args)), {k: of(v) for k, v in kwargs.items()}

    def _run_dry(
        self, kernel: Any, grid: Grid | None, args: Args, kwargs: Kwargs, alone: bool
    ) -> tuple[Any, LaunchResult, Compiled]:
        """A launch without values: that it compiles, fits and synchronises, and what it returns."""
        specs = SpecArguments()
        args, kwargs = specs.replaced_in(args, kwargs)
        bound, key, compiled = self._compiled(kernel, grid, args, kwargs, specs.unknown)
        tensors = resident(bound[0])
        self._at_home(tensors, alone)
        tell([*compiled.warnings, *compiled.unstored])
        launch = ResidentLaunch(self, key, compiled, bound, tensors, None, alone)
        launch.place_dry()
        unknown = specs.unknown(bound) | set(tensors)
        by_values = len(unknown) < len(bound[0].arrays) and has_loops(compiled)
        reports = None if by_values else self._dried.get(key)
        if reports is None:
            if len(self._dried) >= CACHED_LAYOUTS:  # most are of kernels long gone
                self._dried.clear()
            reports = self._dried[key] = reports_of(self, compiled, bound, unknown)
        result = LaunchResult(EMPTY, [], reports)
        self.note(launch.sessions, compiled, result)
        return _in_kind(launch.outputs, alone), result, compiled


def _in_kind(outputs: Any, alone: bool) -> Any:
    """What a launch returns: outside of a world, a list with what its only rank does."""
    return [outputs] if alone else outputs


def _leaf(value: Any) -> bool:
    return is_array(value) or isinstance(value, (TensorSpec, PerRank))


def resident(bound: BoundArguments) -> dict[int, DeviceTensor]:
    """The arguments that stay in HBM, by index."""
    return {n: t for n, t in enumerate(bound.originals) if isinstance(t, DeviceTensor)}


def _with_values(b: BoundArguments, values: Mapping[int, np.ndarray]) -> BoundArguments:
    """The same arguments with these arrays in place of some."""
    arrays, originals = list(b.arrays), list(b.originals)
    for n, value in values.items():
        arrays[n] = originals[n] = value
    return replace(b, arrays=arrays, originals=originals, framework=None)
