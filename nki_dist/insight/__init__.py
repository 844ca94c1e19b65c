"""Answers what happened inside a launch: what was written, where a number came from, what was lost.

A record keeps a launch's arguments and programs, and carries it out again for whatever is asked
(`replay`), so that nothing has to be kept that nobody asks for. Knows no instruction by name.
"""
