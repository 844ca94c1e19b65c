"""Mutants: small faults put into copies of the package, to see which of them the tests notice."""
