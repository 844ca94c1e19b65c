"""Kernels of Beta 1, run as they are and migrated."""

import itertools
import textwrap
import warnings

import numpy as np

import nki_dist as nki
from nki_dist import errors
from nki_dist.compat import beta1
from nki_dist.migrate import migrate

HEADER = """\
import math
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

"""
count = itertools.count()


def loaded(text, tmp_path, package):
    """The function `kernel` of a program, whose nki is one of ours."""
    file = tmp_path / f"program_{next(count)}.py"
    lines = text.splitlines()
    kept = [x for x in lines if "nki" not in x or not x.startswith("import")]
    file.write_text("\n".join(kept))
    names = {"math": __import__("math"), "np": np, "nl": package.language, "nisa": package.isa}
    names["nki"] = package
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["kernel"]


def both(body, tmp_path, *args):
    """What a Beta 1 kernel gives, before and after; and the new text."""
    text = HEADER + textwrap.dedent(body)
    done = migrate(text)
    assert not done.decisions, done.decisions
    want = beta1.simulate_kernel(beta1.jit(loaded(text, tmp_path, beta1)), *args)
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.ReleaseWarning)
        with nki.World(host="inprocess", release="0.7") as world:
            (got,) = world.run(nki.jit(loaded(done.text, tmp_path, nki)), *args)
    assert got.dtype == want.dtype and got.tobytes() == want.tobytes()
    return got, done.text
