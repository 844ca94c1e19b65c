"""`python -m nki_dist`: the same as the console script `nki-dist`."""

from __future__ import annotations

import sys

from nki_dist.cli import main

if __name__ == "__main__":
    sys.exit(main())
