"""Tampered program files: what reading and running them ends in; see __main__.py."""
