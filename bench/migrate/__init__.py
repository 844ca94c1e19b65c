"""Whether what `nki-dist migrate` makes of published programs computes the same."""
