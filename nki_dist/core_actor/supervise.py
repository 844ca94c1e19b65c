"""Supervising one launch over several actors until each has answered or was given up.

Nothing here waits for anybody without end, unless it is for a computation that may take so long:

- A core that fails ends the launch; the others are told to stop and have GRACE seconds for it.
- Rounds of questions (`RollCall`) say whether a launch can still go on (`Watch`).
- A process that doesn't answer can't be told from one that computes something long, so it is given
  up only when the world's timeout is over, at once if it is known to be stopped. Until then a line
  of progress, and after WARN_AFTER seconds a warning, name it.
- The session itself may be gone (`Watchdog`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import ray

from nki_dist.core_actor.lost import LOST, cause
from nki_dist.core_actor.orders import Answer, Status
from nki_dist.core_actor.watchdog import Patience
from nki_dist.core_actor.world_actors import GRACE, LOOK_EVERY, WorldActors
from nki_dist.errors import CoreLostError, NkiError, UnresponsiveWarning
from nki_dist.runtime.deadlock import SETTLES, deadlock
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.overdue import Position, overdue, standing
from nki_dist.runtime.progress import Progress

LOOK_AT_LEAST_EVERY: Final = 0.4  # and later: looking takes processor time away from cores
ROUND: Final = 0.25  # seconds that a look waits for answers
PRINTS: Final = 1.0  # seconds to say what was printed, for cores that were told to stop
FROZEN: Final = 1.0  # seconds of silence, after the timeout, of a process that isn't surely stopped
NOTE_AFTER: Final = 3.0  # seconds of silence that progress speaks of
WARN_AFTER: Final = 20.0  # seconds of silence that are worth a warning


class LaunchHost(Protocol):
    """What a launch needs of the host; processes go by number."""

    def check(self) -> None: ...
    def order(self, n: int) -> None: ...
    def done(self, n: int, answer: Answer) -> None: ...
    def gone(self, n: int) -> str | None: ...
    def discard(self, n: int) -> None: ...
    def warn(self, warning: UnresponsiveWarning) -> None: ...


class RollCall:
    """Asks all processes of a launch where they stand, and knows who doesn't answer.

    A round asks everybody and is over when all have answered; the next begins after that, so two
    rounds are two looks as `Watch` needs them. A process that dies voids the round. One that is
    frozen never answers, and so is one that computes for long without letting other threads run:
    both are silent, and who waits decides for how long that is borne.

    Args:
        actors: of all processes, None for those given up; looked at when a round begins.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors
        self._pending: dict[int, Any] = {}
        self._answers: dict[int, Status] = {}
        self._since = 0.0
        self.last: dict[int, Status] = {}

    def look(self, patience: float) -> list[Status] | None:
        """Everybody's status, if the round is over within so many seconds."""
        if not self._pending:
            self._since = time.monotonic()
            self._answers = {}
            self._pending = {
                n: a.status.remote() for n, a in enumerate(self._actors) if a is not None
            }
        open_ = list(self._pending.values())
        ready, _ = ray.wait(open_, num_returns=len(open_), timeout=patience)
        for n, future in list(self._pending.items()):
            if future in ready:
                try:
                    self._answers[n] = self.last[n] = ray.get(future)
                except LOST:
                    self._pending = {}  # its own answer tells of the death
                    return None
                del self._pending[n]
        return None if self._pending else list(self._answers.values())

    def silent(self) -> dict[int, float]:
        """Who hasn't answered for how many seconds."""
        passed = time.monotonic() - self._since
        return dict.fromkeys(self._pending, passed)

    def forget(self, n: int) -> None:
        """A process was given up."""
        self._pending.pop(n, None)


class Watch:
    """Decides from successive looks whether a launch can still go on.

    A deadlock is certain when two looks in a row see all actors parked or done, with the same
    counts, every message that was sent also arrived, and no parked actor with a message it hasn't
    looked at: then nothing is on its way and nothing can change any more. Once two cores disagree
    the others have SETTLES seconds to come to such a rest.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._before: list[Status] | None = None
        self._settled = math.inf

    def verdict(self, number: int, statuses: list[Status]) -> NkiError | None:
        parked = [s for s in statuses if s.state == "parked"]
        quiet = all(s.launch == number and s.state in ("parked", "done") for s in statuses)
        quiet = quiet and bool(parked)
        quiet = quiet and all(s.taken == s.arrived for s in parked)
        quiet = quiet and sum(s.sent for s in statuses) == sum(s.arrived for s in statuses)
        same = quiet and statuses == self._before
        self._before = statuses
        waits = [w for s in statuses for w in s.waits]
        disagree = any(w.met is not None for w in waits)
        if math.isinf(self._settled) and disagree:
            self._settled = time.monotonic() + SETTLES
        if same or (disagree and time.monotonic() > self._settled):
            return deadlock(waits, [c for s in statuses for c in s.finished if s.launch == number])
        if self._patience.left() < 0:
            running = [p for s in statuses for p in s.running]
            return overdue(self._patience.seconds, running, waits)
        return None


class Supervisor:
    """One launch.

    Args:
        host: whose launch it is.
        processes: that run it.
        number: of the launch.
        cores: in all.
        patience: that ends with the world's timeout.
    """

    def __init__(
        self,
        host: LaunchHost,
        processes: WorldActors,
        number: int,
        cores: int,
        patience: Patience,
    ) -> None:
        self._host, self._world = host, processes
        self._number, self._patience = number, patience
        self._actors = processes.actors
        self._roll = RollCall(self._actors)
        self._watch = Watch(patience)
        self._progress = Progress(cores)
        self._stops = math.inf  # when nobody waits any more for those who were told to stop
        self._warned: set[int] = set()
        self._ended: set[int] = set()  # have answered, or were given up
        self.answers: list[Answer | None] = []
        self.ordered = False  # whether all have their orders, and none is being given

    def run(self) -> list[Answer]:
        """Start all actors on the launch and collect their answers, errors among them.

        Raises:
            SessionLost: the Ray session is gone.
        """
        self.answers = [None] * len(self._actors)
        for n in range(len(self._actors)):
            self._host.order(n)
        self.ordered = True
        try:
            self._collect()
        finally:
            self._progress.close()
        return [a for a in self.answers if a is not None]

    def _collect(self) -> None:
        pause = LOOK_EVERY
        while None in self.answers:
            self._host.check()
            open_ = [n for n, a in enumerate(self.answers) if a is None]
            for n, answer in self._world.calls.answers(open_, self._number, pause):
                self._take(n, answer)
            pause = min(1.5 * pause, LOOK_AT_LEAST_EVERY)
            self._lose_with_nodes()
            if any(a is not None and a.error is not None for a in self.answers):
                self._stop()
            elif None in self.answers:
                self._look()

    def unfinished(self) -> set[int]:
        """The processes that may still be running."""
        return set(range(len(self.answers))) - self._ended

    def cancel(self) -> None:
        """Tell those that haven't answered to stop."""
        for actor, answer in zip(self._actors, self.answers):
            if answer is None and actor is not None:
                actor.cancel.remote(self._number)

    def _take(self, n: int, answer: Answer | Exception) -> None:
        if isinstance(answer, LOST):
            text = (
                f"the {self._world.title(n)} died during the launch; the other cores were stopped "
                f"and the next launch starts a new process ({cause(answer)})"
            )
            self._lose(n, text)
            return
        if isinstance(answer, Exception):
            raise answer
        if answer.unknown_program:
            self._host.done(n, answer)
            self.ordered = False
            self._host.order(n)
            self.ordered = True
            return
        self._ended.add(n)
        self._host.done(n, answer)
        self.answers[n] = answer

    def _lose_with_nodes(self) -> None:
        """Give up the processes of nodes that have ended, before Ray knows."""
        for n, answer in enumerate(self.answers):
            if answer is None and (node := self._host.gone(n)):
                text = (
                    f"the Ray node {node} of the {self._world.title(n)} has ended; the other cores "
                    "were stopped and the next launch uses the nodes that are left"
                )
                self._lose(n, text)

    def _lose(self, n: int, text: str) -> None:
        """Give a process up, with where it was when it last said so."""
        last = self._roll.last.get(n)
        error = CoreLostError(text, core=self._world.core(n))
        if last is not None and last.launch == self._number:
            seen: list[Position | Wait] = [*last.running, *last.waits]
            lines = standing(last.running, last.waits)
            error.message += "".join(f"\n  - when it last answered, {line}" for line in lines)
            error.at(location=next((s.location for s in seen if s.location), None))
        self._give_up(n)
        self.answers[n] = Answer(self._number, error=error)

    def _give_up(self, n: int) -> None:
        self._ended.add(n)
        self._roll.forget(n)
        self._host.discard(n)

    # ---- when nobody finishes -------------------------------------------------------------------

    def _stop(self) -> None:
        """The launch has failed: have the others stop, and give up those that don't."""
        now = time.monotonic()
        if math.isinf(self._stops):
            self._stops = now + GRACE
            self.cancel()
        elif now > self._stops:
            for n, answer in enumerate(self.answers):
                if answer is None:
                    self._give_up(n)
                    self.answers[n] = Answer(self._number, cancelled=True)

    def _look(self) -> None:
        """See whether anything can still finish."""
        statuses = self._roll.look(ROUND)
        if statuses is None:
            self._judge_silent()
            return
        done = [s.progress for s in statuses if s.launch == self._number]
        if all(s.launch == self._number and s.state == "done" for s in statuses):
            self._world.calls.dismiss()  # an answer that was missed comes again as a call's result
        self._progress.ran(sum(n for n, _ in done), sum(n for _, n in done))
        error = self._watch.verdict(self._number, statuses)
        if error is not None:
            self._end(error)

    def _end(self, error: NkiError) -> None:
        """The launch ends with this error; those that run are left to stop by themselves.

        Prints travel with answers, which they give when they stop; one that is dead or doesn't
        react has no say.
        """
        self.cancel()
        given = {
            n: Answer(self._number, error=error) for n, a in enumerate(self.answers) if a is None
        }
        for n, answer in self._world.calls.answers(given, self._number, PRINTS):
            if not isinstance(answer, Exception):
                given[n].printed = answer.printed
        for n, answer in given.items():
            self.answers[n] = answer

    def _judge_silent(self) -> None:
        silent = self._roll.silent()
        if self._patience.left() < 0:
            for n, seconds in silent.items():
                stopped = self._world.stopped(n)
                if not stopped and seconds <= FROZEN:
                    continue
                if self.answers[n] is None:
                    self._lose(n, self._frozen(n, seconds, stopped))
                else:  # it is done, but the round shouldn't wait for it
                    self._give_up(n)
            return
        for n, seconds in silent.items():
            if seconds > NOTE_AFTER:
                self._progress.waits(
                    f"the {self._world.title(n)} hasn't answered for {seconds:.0f} s"
                )
            if seconds > WARN_AFTER and n not in self._warned:
                self._warned.add(n)
                self._host.warn(self._unresponsive(n, seconds))

    def _frozen(self, n: int, seconds: float, stopped: bool) -> str:
        how = "it is stopped, as SIGSTOP does" if stopped else "it is frozen, or computes for long"
        return (
            f"the {self._world.title(n)} hasn't answered for {seconds:.1f} s and the launch has "
            f"taken longer than the world's timeout of {self._patience.seconds:g} s: {how}. It was "
            "killed, the other cores were stopped and the next launch starts a new process"
        )

    def _unresponsive(self, n: int, seconds: float) -> UnresponsiveWarning:
        stopped = self._world.stopped(n)
        how = (
            "it is stopped, as SIGSTOP does: SIGCONT lets it go on, SIGKILL ends the launch"
            if stopped
            else "it is frozen, or computes something long"
        )
        return UnresponsiveWarning(
            f"the {self._world.title(n)} hasn't answered for {seconds:.0f} s: {how}. The launch "
            "waits for it, for ever if need be; World(timeout=SECONDS) gives such a process up",
            core=self._world.core(n),
        )


def finish(answers: Sequence[Answer], printer: Callable[[int, str, np.ndarray], None]) -> None:
    """Show what was printed, and raise the first failure, if any; a lost core explains failures of
    its peers."""
    for answer in answers:
        for core, prefix, array in answer.printed:
            printer(core, prefix, array)
    errors = [a.error for a in answers if a.error is not None]
    lost = [error for error in errors if isinstance(error, CoreLostError)]
    if lost:
        if lost[1:]:
            lost[0].message += f"; {len(lost) - 1:,} more processes were lost with it"
        raise lost[0]
    if errors:
        raise errors[0]
