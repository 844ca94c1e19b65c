"""One tampered file: read it, run what can be read, and say how it ended.

Run as somebody would who was given the file: `Compiled.load`, then a world of its platform with
arrays of the shapes it asks for. Arrays of more than 64 MiB aren't made; the launch then gets too
small ones, as from a caller who expected the kernel he knows.
"""

from __future__ import annotations

import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import nki_dist as nki
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.saved import parse
from nki_dist.errors import NkiError, ProgramFormatError
from nki_dist.program import TensorSignature

MIB: Final = 1 << 20
LARGEST: Final = 64 * MIB  # bytes of arguments that are made
SECONDS: Final = 1.0  # `World(timeout=)`
MEMORY: Final = 256 * MIB  # `World(memory=)`, which doesn't count scratch space

REFUSED: Final = "refused"
RAN: Final = "ran"
TYPED: Final = "typed error"
WRONG: Final = "wrong"  # another exception


@dataclass
class Outcome:
    """How a file ended.

    Attributes:
        kind: REFUSED when read, RAN to a result, a TYPED error when run, or WRONG.
        what: type and message of the exception, or "".
        frame: file, line and function it came from.
        seconds: of the processor, reading and running; other programs don't count.
    """

    kind: str
    what: str = ""
    frame: str = ""
    seconds: float = 0.0


def tried(data: bytes, ranks: int, seconds: float = SECONDS) -> Outcome:
    """Read a file and run it on so many ranks, for so many seconds at most."""
    start = time.process_time()
    outcome = _tried(data, ranks, seconds)
    outcome.seconds = time.process_time() - start
    return outcome


def _tried(data: bytes, ranks: int, seconds: float) -> Outcome:
    stage = REFUSED
    try:
        compiled = Compiled(*parse(data))
        stage = TYPED
        run(compiled, ranks, seconds)
    except NkiError as error:
        if stage == REFUSED and not isinstance(error, ProgramFormatError):
            return _ended(WRONG, error)
        return _ended(stage, error)
    except Exception as error:
        return _ended(WRONG, error)
    return Outcome(RAN)


def run(compiled: Compiled, ranks: int, seconds: float = SECONDS) -> Any:
    """What a world of so many ranks returns for it.

    Raises:
        NkiError: whatever is wrong with it.
    """
    first = compiled.programs[0]
    small = sum(s.nbytes for s in compiled.inputs) <= LARGEST
    arrays = [_array(s) if small else np.zeros(1, np.float32) for s in compiled.inputs]
    cores = len(compiled.programs)
    limits = {"timeout": seconds, "memory": MEMORY}
    world = nki.World(ranks, cores, first.platform, "inprocess", **limits)
    with world, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return world.run(compiled, *arrays)


def _array(s: TensorSignature) -> np.ndarray:
    """Small numbers, different from each other; in range where they are indices."""
    count = s.nbytes // s.dtype.itemsize
    values = np.arange(count) % 5
    if not s.dtype.is_float or s.dtype.is_mx:
        return values.astype(s.dtype.raw).view(s.dtype.dtype).reshape(s.shape)
    return values.astype(np.float32).astype(s.dtype.dtype).reshape(s.shape)


def _ended(kind: str, error: BaseException) -> Outcome:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "nki_dist" in f.filename] or frames
    last = own[-1]
    place = f"{last.filename.rpartition('nki_dist/')[2]}:{last.lineno} {last.name}"
    return Outcome(kind, f"{type(error).__name__}: {str(error)[:300]}", place)
