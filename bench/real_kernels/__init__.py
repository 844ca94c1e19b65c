"""How many published kernels run and match: `python -m bench.real_kernels --help`.

Nothing of the checkouts is stored here; their own tests decide what matches. Not part of the tests.
"""
