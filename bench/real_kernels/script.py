"""`python -m bench.real_kernels.script FILE [arguments]`: a script of a checkout, recorded.

Runs as by `nki-dist run`. Such scripts compare results themselves and print the verdict, so the
outcome is: failed if it ends in an error or prints that something differs; passed if it prints that
something matches; else ran. The line for the record is the last one of stdout.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import time
import traceback

from bench.real_kernels.record import Recorder
from nki_dist import compat

DIFFERS = re.compile(r"differ|mismatch|incorrect|wrong|not (all)?close|: *False", re.IGNORECASE)
MATCHES = re.compile(r"match|PASS|correct|close|: *True", re.IGNORECASE)


def main() -> None:
    compat.install()
    compat.install_devices()
    recorder = Recorder()
    recorder.install()
    sys.argv = sys.argv[1:]
    path = sys.argv[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    printed, reason = io.StringIO(), ""
    start = time.monotonic()
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            reason = f"ended with status {end.code}" if end.code else ""
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"[:300]
    text = printed.getvalue()
    outcome, differs = "passed" if MATCHES.search(text) else "ran", DIFFERS.search(text)
    if differs is not None:
        reason = reason or differs[0]
    if reason:
        outcome = "failed"
    row = {"file": os.environ.get("REAL_KERNELS_FILE", path), "test": os.path.basename(path)}
    row |= {"outcome": outcome, "reason": reason, "seconds": time.monotonic() - start}
    print(text, file=sys.stderr)
    print(json.dumps(row | {"kernels": recorder.take()}))


if __name__ == "__main__":
    main()
