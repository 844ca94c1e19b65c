"""Profiles as pages: one HTML file that fetches nothing, and what a notebook shows.

Works on a profile's numbers (`Profile.to_dict()`) and its timeline, and knows nothing of launches.
Invariant: equal profiles and equal sources give equal bytes; no host clock is read.
"""

from __future__ import annotations

from nki_dist.report.notebook import notebook_html
from nki_dist.report.page import write_page

__all__ = ["notebook_html", "write_page"]
