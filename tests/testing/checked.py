"""What the tests of check_kernel share."""

from __future__ import annotations

from typing import Any

from nki_dist.testing import Case, Report, check_kernel

CASE = Case({"x": (13, 7)})


def wrong(*args: Any, **options: Any) -> Report:
    """The report of a kernel that isn't right."""
    report = check_kernel(*args, raises=False, **options)
    assert not report.ok
    return report
