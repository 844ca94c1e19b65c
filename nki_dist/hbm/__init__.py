"""Memory that the cores of a rank share: where tensors lie in it, and what it is made of.

A stack is a NumPy array, or an object in Ray's store that many processes write to (`plasma`).
"""
