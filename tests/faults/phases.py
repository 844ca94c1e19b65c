"""What `interrupted` interrupts: phases of launches' lives, each as something that can be done."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

LARGE = 20  # megabytes of a stack that is new to a world
ROUNDS = 300
GONE = 8.0  # seconds after which nothing of a closed world runs


class Phase:
    """What is interrupted: `prepare`, then `act`, as often as asked; `again` in the same world."""

    alone = False  # whether it can be done but once in a process

    def __init__(self, host: str) -> None:
        self.host = host
        self.world: Any = None
        self.scale = 3

    @property
    def worlds(self) -> Any:
        """What launches; imported late, because the import may be what is interrupted."""
        return importlib.import_module("tests.faults.worlds")

    def prepare(self, number: int) -> None:
        """Undisturbed."""
        if self.world is None or number % 10 == 9:
            self.renew()
        self.scale += 1

    def act(self) -> None:
        """May be interrupted."""
        raise NotImplementedError

    def again(self) -> None:
        """The next launches in the same world."""
        self.worlds.launch(self.world)
        self.worlds.launch_long(self.world, 3)

    def renew(self) -> None:
        """Another world, that has launched both kernels."""
        if self.world is not None:
            self.world.close()
        self.world = self.made()
        Phase.again(self)

    def made(self) -> Any:
        """A world that isn't started."""
        return self.worlds.nki.World(ranks=self.worlds.RANKS, host=self.host)

    def anew(self) -> None:
        """Launches in a new world."""
        with self.made() as world:
            self.worlds.launch(world)


class Import(Phase):
    alone = True

    def prepare(self, number: int) -> None:
        # Not ours, and NumPy can't be imported again once its import was interrupted.
        importlib.import_module("ml_dtypes")

    def act(self) -> None:
        # All that a program's first lines import; some of it is only imported when it is used.
        for name in ("", ".collectives", ".isa", ".language", ".launcher.world"):
            importlib.import_module("nki_dist" + name)

    def again(self) -> None:
        self.act()
        self.world = self.made()
        super().again()


class Start(Phase):
    """The first world of a process, which imports and starts Ray."""

    alone = True

    def prepare(self, number: int) -> None:
        self.world = self.made()

    def act(self) -> None:
        self.world.start()


class World(Phase):
    """The start of one where there were others."""

    def prepare(self, number: int) -> None:
        self.renew()
        self.world.close()
        self.world = self.made()

    def act(self) -> None:
        self.world.start()


class Compile(Phase):
    """The first launch of a kernel."""

    def act(self) -> None:
        self.worlds.launch(self.world, self.scale)


class Map(Phase):
    """The first launch with larger stacks: in turn a world's first ones, and larger ones."""

    ballast = LARGE

    def prepare(self, number: int) -> None:
        super().prepare(number)
        self.ballast += 1
        if number // 4 % 2:  # modes alternate by number, too
            self.ballast = LARGE
            self.renew()
        self.worlds.compiled(self.world, self.scale, self.ballast)

    def act(self) -> None:
        self.worlds.launch(self.world, self.scale, self.ballast)

    def again(self) -> None:
        super().again()
        self.worlds.launch(self.world, self.scale, self.ballast)


class Run(Phase):
    def act(self) -> None:
        self.worlds.launch_long(self.world, ROUNDS)


class Warm(Phase):
    def act(self) -> None:
        self.worlds.launch(self.world)


class Close(Phase):
    """Afterwards the world is closed again, and then nothing of it may run."""

    def prepare(self, number: int) -> None:
        self.renew()
        processes = getattr(self.world.host, "processes", ())
        self._pids = [pid for pid, _ in processes]

    def act(self) -> None:
        self.world.close()

    def again(self) -> None:
        self.world.close()
        late = time.monotonic() + GONE
        while left := [pid for pid in self._pids if os.path.exists(f"/proc/{pid}")]:
            if time.monotonic() > late:
                raise self.worlds.Wrong(f"processes {left} of a closed world are still there")
            time.sleep(0.05)


class End(Phase):
    """The program's end, which begins when `main` returns; with the world open, or closed."""

    alone = True

    def prepare(self, number: int) -> None:
        self.renew()
        if number // 4 % 2:
            self.world.close()


PHASES: dict[str, type[Phase]] = {
    "import": Import,
    "start": Start,
    "world": World,
    "compile": Compile,
    "map": Map,
    "run": Run,
    "warm": Warm,
    "close": Close,
    "end": End,
}
