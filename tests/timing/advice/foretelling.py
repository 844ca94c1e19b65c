"""Holding a finding against a kernel that follows it."""

import numpy as np
import pytest

import nki_dist as nki


def is_shape(value):
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)


def time_of(kernel, *arguments, grid=1, schedule="compiled"):
    """A kernel's profile; shapes stand for float32 tensors."""
    specs = [nki.TensorSpec(a, np.float32) if is_shape(a) else a for a in arguments]
    return nki.estimate(nki.jit(kernel)[grid], schedule=schedule)(*specs)


def finding(profile, rule):
    (found,) = [f for f in profile.advice() if f.rule == rule]
    return found


def rules(profile):
    return [f.rule for f in profile.advice()]


def foretold(profile, better, rule, rel):
    """The finding of a rule, whose saving is what the better kernel really saves."""
    found = finding(profile, rule)
    assert found.saves_us == pytest.approx(profile.device_us - better.device_us, rel=rel)
    assert found.share == pytest.approx(found.saves_us / profile.total_us)
    assert all("/advice/test_" in line for line in found.lines) and found.source
    assert found.location == found.lines[0]
    assert rule not in rules(better)
    return found
