"""`python -m tests.refusals` writes docs/refusals.md anew."""

from tests.refusals.page import PAGE, page

PAGE.write_text(page())
