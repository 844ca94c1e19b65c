"""A kernel of Beta 1 with its trace left as it is, to compare with."""

import numpy as np
import pytest

from nki_dist import World
from nki_dist.compat.beta1 import jit, launch
from nki_dist.launcher.session import CompileCache, session


@pytest.fixture
def as_written(monkeypatch):
    """Runs a kernel whose trace is left as it is."""

    def runs(kernel, *args):
        left = []
        with monkeypatch.context() as patch:
            patch.setattr(launch, "finish", left.append)
            patch.setattr(session(), "cache", CompileCache())
            with World(ranks=1, platform="trn2", host="inprocess") as world:
                (result,) = world.run(jit(kernel), *args)
        assert left  # it was traced again
        return np.asarray(result)

    return runs
