"""Linking: the instructions of a program become operations on places, which passes make fewer.

`link` is where it begins. Knows no array, no core, and no process; `runtime.binding` makes calls
with arrays of what comes out.
"""
