"""Worlds: how many ranks, of how many cores, on which platform, run where."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nki_dist import arch as architectures
from nki_dist.arch.measured import VARIABLE as ARCH_VARIABLE
from nki_dist.arch.measured import measured
from nki_dist.checks import Policy, checks_of
from nki_dist.collectives.check import check_world
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.launcher.binding import (
    Args,
    BoundArguments,
    Kwargs,
    PerRank,
    bind_arguments,
    not_a_kernel,
)
from nki_dist.launcher.deferred import bind_ranks, settled
from nki_dist.launcher.estimates import Doubts, dry_run_of, estimate_of, nothing_unknown
from nki_dist.launcher.findings import check_run, findings, tell
from nki_dist.launcher.grid import grid_of_world
from nki_dist.launcher.hosted import ray_request
from nki_dist.launcher.loaded import bind_loaded
from nki_dist.launcher.options import check_options, whole
from nki_dist.launcher.profiles import executed
from nki_dist.launcher.recording import Recording
from nki_dist.launcher.resident import Resident
from nki_dist.launcher.results import Run, check_written, inputs_as_run, read_outputs
from nki_dist.launcher.retrying import launch_again
from nki_dist.launcher.session import CACHED_KERNELS, session
from nki_dist.launcher.tracebacks import leaves_package
from nki_dist.runtime.dry_report import DryRun, run_dry
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.hosts import Launch, LaunchResult
from nki_dist.runtime.printing import Printer
from nki_dist.runtime.settings import (
    OPTIONS_VARIABLE,
    default_check,
    default_host,
    default_threads,
    default_timeout,
    default_transport,
    of_release,
)
from nki_dist.timing import COMPILED, Profile, check_schedule
from nki_dist.topology.topology import Topology

WORLDS_READ = (ARCH_VARIABLE, OPTIONS_VARIABLE)  # what a world takes from the environment


class World(Recording, Resident):
    """A set of ranks, each a logical core of `lnc` physical cores.

    Args:
        ranks: logical cores.
        lnc: physical cores per logical core, 1 or 2.
        platform: "trn1", "trn2" or "trn3"; NEURON_PLATFORM_TARGET_OVERRIDE or trn2 by default.
        host: "ray" (cores are Ray actors), "inprocess", or "debug": in this process, each
            instruction as it is called (see `nki.debug`); NKI_DIST_HOST or "ray" by default.
        cores_per_actor: "auto" or how many cores share a Ray actor.
        address: of a Ray cluster to join; a local one is started otherwise.
        timeout: seconds after which a launch or dry run ends with a DeadlockError that says where
            its cores are; NKI_DIST_TIMEOUT or never by default. Looked at between loop rounds,
            messages and every thousand instructions.
        transport: between processes: "ring" (shared memory of a node), "messages" (Ray actor
            calls), or "auto": rings on one node. NKI_DIST_TRANSPORT or "auto" by default.
        check: what kernels are checked against: an `nki.Checks`, or text such as
            "unwritten=zero,races=warn", "strict" or "spill", or several in a list; NKI_DIST_CHECK
            or "default" by default.
        memory: bytes of this machine's memory that the tensors of a launch may take, all ranks
            together; None for what it has. Only for the host "inprocess": Ray has its own limits.
        threads: that carry out a launch in each process of the world; by default NKI_DIST_THREADS,
            or the processors that the world's processes of the same node leave it. Bits don't
            depend on them, and a launch too small to gain takes one.
        retries: how often a launch is run again, on what is left and with a RetryWarning, that
            lost a process, a node or its Ray session; one that doesn't answer within `timeout` is
            lost, too. It gives the same bits. In process nothing can be lost.
        arch: a file of figures that `nki-dist calibrate` wrote; NKI_DIST_ARCH by default. Only
            simulated time depends on them.
        release: of NKI: "0.6", "0.7", or "any" of both; NKI_DIST_RELEASE or "any" by default.
        actor_options: what each simulated core's process asks Ray for, by Ray's names: num_cpus,
            memory (bytes), resources, label_selector, runtime_env; NKI_DIST_ACTOR_OPTIONS (JSON) or
            nothing by default. Each instance has a bundle of a placement group for its processes.
        placement_group: of Ray, to run in; by default that of the task or actor which makes the
            world, if it captures its children. Other hosts have no use for these two.
        dry: whether launches compute no values: tensors have shapes only, and what is found out is
            whether kernels compile, fit, and synchronise, and how long they take.

    Raises:
        LaunchError: the combination isn't possible.
    """

    @leaves_package
    def __init__(
        self,
        ranks: int = 1,
        lnc: int = 1,
        platform: str | None = None,
        host: str | None = None,
        cores_per_actor: str | int = "auto",
        address: str | None = None,
        timeout: float | None = None,
        check: Policy | None = None,
        transport: str | None = None,
        memory: int | None = None,
        retries: int = 0,
        threads: int | None = None,
        arch: str | os.PathLike[str] | None = None,
        release: str | None = None,
        actor_options: Mapping[str, Any] | None = None,
        placement_group: Any = None,
        dry: bool = False,
    ) -> None:
        host = default_host() if host is None else host
        transport = default_transport() if transport is None else transport
        named = None if platform is None else architectures.get(platform)
        figures = measured(named or architectures.from_environment(), arch)
        Topology(figures, ranks, lnc)  # refuses what it can't place
        check_options(host, transport, timeout, memory, cores_per_actor, threads, retries)
        self.checks = of_release(default_check() if check is None else checks_of(check), release)
        self.timeout = default_timeout() if timeout is None else timeout
        self.retries = retries
        self._dried: dict[str, list[CoreReport]] = {}
        self._sessions = None
        self._groups_checked: set[str] = set()
        self.printer = Printer(lnc, session().next_number)
        threads = default_threads() if threads is None else threads
        on_ray = {"cores_per_actor": cores_per_actor, "address": address, "transport": transport}
        if host == "ray":
            on_ray |= ray_request(actor_options, placement_group)
        super().__init__(figures, ranks, lnc, host, dry, memory, threads, on_ray)

    @classmethod
    def trn2(cls, **options: Any) -> World:
        """All of a trn2.48xlarge: 16 chips in a 4x4 torus, 64 ranks of 2 cores.

        Args:
            options: as of World; with lnc=1, there are 128 ranks unless `ranks` says otherwise.
        """
        return cls(**whole("trn2", options))

    @classmethod
    def trn2_ultraserver(cls, count: int = 1, **options: Any) -> World:
        """All of a Trn2 UltraServer: 4 instances, a 4x4x4 torus of chips, 256 ranks of 2 cores.

        Args:
            count: of UltraServers, which EFA connects.
            options: as of World; with lnc=1, each UltraServer has 512 ranks. `ranks` instead of
                `count` asks for any other number.
        """
        return cls(**whole("trn2-ultraserver", options, count))

    @leaves_package
    def run(
        self,
        kernel: Any,
        *args: Any,
        profile: bool = False,
        schedule: str = COMPILED,
        **kwargs: Any,
    ) -> Any:
        """Run a kernel on every rank.

        Args:
            kernel: an `nki.jit` kernel, a plain function, or what `Compiled.load` read.
            args, kwargs: its arguments; `per_rank(...)` where ranks differ. A compiled kernel takes
                its tensors only, in the order of its `inputs`.
            profile: also simulate time, and return a `Run`.
            schedule: of that time, "compiled" or "program"; see `nki.profile`.

        Returns:
            A list with what the kernel returns for each rank, or a Run. With a DeviceTensor among
            the arguments, what it returns, once, with DeviceTensors; on Ray the launch may not have
            ended then, and its error comes with the next value or `wait`.
        """
        check_schedule(schedule)
        if (checker := session().checker) is not None:
            look, outputs = self._looked_at(checker, kernel, None, args, kwargs, False)
            return look.run(outputs, schedule) if profile else outputs
        outputs, result, compiled = self._launch(kernel, None, args, kwargs, now=profile)
        return self._run(outputs, result, compiled, schedule) if profile else outputs

    def run_one(
        self, kernel: Any, grid: Grid, args: Args, kwargs: Kwargs, schedule: str | None
    ) -> Any:
        """`kernel[grid](...)` on a one-rank world: the result, or a Run if time has a schedule."""
        if (checker := session().checker) is not None:
            look, (output,) = self._looked_at(checker, kernel, grid, args, kwargs, True)
            return output if schedule is None else look.run(output, schedule)
        (output,), result, compiled = self._launch(
            kernel, grid, args, kwargs, True, schedule is not None
        )
        return output if schedule is None else self._run(output, result, compiled, schedule)

    def _run(self, outputs: Any, result: LaunchResult, compiled: Compiled, schedule: str) -> Run:
        ran = executed(self, self._algorithm, compiled, result.reports, result.programs)
        return Run(outputs, ran.profile(schedule), result.reports, result.losses)

    @leaves_package
    def dry_run(
        self,
        kernel: Any,
        *args: Any,
        profile: bool = False,
        schedule: str = COMPILED,
        **kwargs: Any,
    ) -> DryRun:
        """Run a kernel without arithmetic, to see whether its cores synchronise as they should.

        Loops, semaphores, `sendrecv`, barriers, collectives and run-time addresses are as in `run`
        and so are the errors; tensors have no contents unless loops or addresses depend on them.
        Runs in this process and doesn't start the world's cores.

        Args:
            kernel, args, kwargs: as in `run`; a `TensorSpec` may stand for any array.
            profile, schedule: also simulate time, in the report's `profile`; see `run`.

        Returns:
            A DryRun: what was executed, and what couldn't be checked. Results aren't computed.

        Raises:
            LaunchError: how often a loop iterates depends on the contents of a TensorSpec.
        """
        check_schedule(schedule)
        return dry_run_of(self, kernel, args, kwargs, schedule if profile else None)

    @leaves_package
    def estimate(self, kernel: Any, *args: Any, schedule: str = COMPILED, **kwargs: Any) -> Profile:
        """The simulated time of a launch: compiled and replayed, without arithmetic or cores.

        Args:
            kernel, args, kwargs: as in `run`; a `TensorSpec` may stand for any array.
            schedule: "compiled" or "program"; see `nki.profile`.

        Returns:
            The profile that `run(..., profile=True)` would give.

        Raises:
            LaunchError: how often a loop iterates depends on the contents of a TensorSpec.
            NkiError: the kernel doesn't compile.
        """
        return estimate_of(self, kernel, None, args, kwargs, check_schedule(schedule))

    def run_dry(
        self,
        compiled: Compiled,
        bound: Sequence[BoundArguments],
        unknown: Collection[int],
        limit: float | None = None,
    ) -> tuple[DryRun, list[CoreReport]]:
        """A dry run of a compiled kernel, and what each core reports of it."""
        arrays, limit = [b.arrays for b in bound], self.timeout if limit is None else limit
        return run_dry(self.slots, compiled.as_run, arrays, unknown, limit)

    @leaves_package
    def compile(self, kernel: Any, *args: Any, **kwargs: Any) -> Compiled:
        """The programs `run` would run with these arguments, without running them."""
        if (checker := session().checker) is not None:
            checked: Compiled = checker.compile(self, kernel, args, kwargs)
            return checked
        return self._compiled(kernel, None, args, kwargs)[2]

    def _compiled(
        self,
        kernel: Any,
        grid: Grid | None,
        args: Args,
        kwargs: Kwargs,
        doubts: Doubts = nothing_unknown,
        defer: bool = False,
    ) -> tuple[list[BoundArguments], str, Compiled]:
        """Every rank's arguments, and the compiled kernel with its name in this process."""
        if isinstance(kernel, Compiled):
            self._refuse_closed()
            bound = bind_loaded(kernel, args, kwargs, self.topology)
            self.check_groups(kernel.key, kernel)
            return bound, kernel.key, kernel
        function = getattr(kernel, "fn", kernel)
        bound, grid = self._bound(kernel, grid, args, kwargs, doubts, defer)
        key, compiled = session().cache.get(function, bound[0], self.arch, grid, self.checks)
        self.check_groups(key, compiled)
        return bound, key, compiled

    def check_groups(self, key: str, compiled: Compiled) -> None:
        """Compare the groups of its collectives with the world, once for each kernel."""
        if key not in self._groups_checked:
            check_world(compiled.programs, self.topology, self.checks.strict)
            if len(self._groups_checked) >= 4 * CACHED_KERNELS:  # most are of kernels long gone
                self._groups_checked.clear()
            self._groups_checked.add(key)

    def _bound(
        self,
        kernel: Any,
        grid: Grid | None,
        args: Args,
        kwargs: Kwargs,
        doubts: Doubts = nothing_unknown,
        defer: bool = False,
    ) -> tuple[list[BoundArguments], Grid]:
        """Every rank's arguments and the grid, before the kernel is compiled for them."""
        function = getattr(kernel, "fn", kernel)
        if not callable(function):
            raise not_a_kernel(function)
        if self.closed:
            self._refuse_closed()
        grid = grid or grid_of_world(getattr(kernel, "grid", None), self.arch, self.lnc)
        tuner = getattr(kernel, "tuner", None)
        if tuner is not None:
            kwargs = tuner.fitted(self, function, grid, args, kwargs, doubts)
        if any(isinstance(value, PerRank) for value in (*args, *kwargs.values())):
            return bind_ranks(function, args, kwargs, self.ranks, defer), grid
        return [bind_arguments(function, args, kwargs)] * self.ranks, grid

    def _launch(
        self,
        kernel: Any,
        grid: Grid | None,
        args: Args,
        kwargs: Kwargs,
        alone: bool = False,
        now: bool = True,
    ) -> tuple[Any, Any, Compiled]:
        """What each rank returns, what is left of the launch, what was compiled; `alone`: on the
        only rank of a world that nobody has made, `now`: return when it has ended."""

        if self.dry:
            return self._run_dry(kernel, grid, args, kwargs, alone)
        if self.host_name == "debug" and not isinstance(kernel, Compiled):
            from nki_dist.launcher.debugging import launch_debugged

            bound, chosen = self._bound(kernel, grid, args, kwargs)

            def debugged(bound: list[BoundArguments]) -> tuple[Any, Any, Compiled]:
                with self._lock:
                    return launch_debugged(self, kernel, chosen, bound)

            return self._by_value(debugged, bound, alone)
        bound, key, compiled = self._compiled(kernel, grid, args, kwargs, defer=True)
        if bound[0].stays:
            if self._needs_values(compiled):
                return self._by_value(
                    lambda b: self.launch_compiled(b, key, compiled), bound, alone
                )
            return self._run_resident(key, compiled, bound, alone, now)
        if not self._row.idle:
            self.wait()
        if compiled.as_run.written_inputs or compiled.wide or session().observer is not None:
            bound = settled(bound)
        return self.launch_compiled(bound, key, compiled)

    def launch_compiled(
        self, bound: list[BoundArguments], key: str, compiled: Compiled
    ) -> tuple[list[Any], LaunchResult, Compiled]:
        """Launch what `_compiled` gave: the outputs of each rank, what is left, the kernel."""
        as_run = compiled.as_run
        if self.residence.held:
            self.residence.check_launch(compiled, range(len(compiled.inputs)))
        inputs = inputs_as_run(as_run, bound)
        launch = Launch(key, compiled, inputs, self.printer, self.timeout, session().warn)
        with self._lock:
            start = self._started
            if self.retries:
                result = launch_again(lambda: lambda of: start().launch(of), launch, self.retries)
            else:
                result = start().launch(launch)
            if compiled.exchanges or compiled.watched:
                check_run(self, as_run, result)
            if self.ranks > 1:
                layouts = [result.layout] * self.ranks
                check_written([as_run] * self.ranks, layouts, result.memories, bound)
            if (observer := session().observer) is not None:
                observer(self, launch, result)
            if compiled.warnings or compiled.undecided or compiled.unstored:
                tell(findings(launch, result, self._started().launch, self.checks))
            outputs = [
                read_outputs(as_run, result.layout, memory, b)
                for b, memory in zip(bound, result.memories)
            ]
            if self._sessions:
                self.note(self.sessions, compiled, result)
        return outputs, result, compiled
