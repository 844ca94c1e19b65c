"""Messages that were sent and that nobody took: found when all cores have finished.

A core that only sends never waits, so a partner that left the operation out goes unnoticed until
the end. Counts are compared, because a message to a core that has finished is dropped on its way.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.errors import CollectiveMismatchError
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.messages import core_names, error_core


def check_messages(reports: Sequence[CoreReport], lnc: int) -> None:
    """Every message sent was received.

    Args:
        reports: of all cores of the launch.
        lnc: cores per rank, or 0 to call cores by number alone.

    Raises:
        CollectiveMismatchError: a core sent more than its partner received.
    """
    taken = {r.core: r.taken for r in reports}
    for report in sorted(reports, key=lambda r: r.core):
        for (target, channel), (count, operation, location) in report.sent.items():
            received = taken[target].get((report.core, channel), 0)
            if received != count:
                me, partner = core_names([report.core], lnc), core_names([target], lnc)
                raise CollectiveMismatchError(
                    f"{me} sent {partner} {count} messages ({channel}), which received "
                    f"{received} and finished; the last was sent by {operation}. All "
                    "cores must issue the same exchanges in the same order",
                    location=location,
                    core=error_core(report.core, lnc),
                    instruction=operation,
                    code="exchange-unread",
                    numbers={"sent": count, "received": received},
                )
