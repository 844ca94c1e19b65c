"""Checking kernels against references: what a test, a course or a kernel writer calls."""

from nki_dist.testing.cases import Case, integers, odd_shapes, odd_sizes
from nki_dist.testing.check import check_kernel
from nki_dist.testing.report import CheckFailed, Difference, Failure, Limits, Report, Result

__all__ = [
    "Case",
    "CheckFailed",
    "Difference",
    "Failure",
    "Limits",
    "Report",
    "Result",
    "check_kernel",
    "integers",
    "odd_shapes",
    "odd_sizes",
]
