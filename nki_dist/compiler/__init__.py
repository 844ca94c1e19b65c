"""Compiling: a kernel's Python function becomes one checked program for each core.

`trace` runs the function and writes down its instructions, `passes` look at the programs, `encode`
and `decode` are the file format. Knows shapes and dtypes; no array, no instruction by name.
"""
