"""Linking: a program becomes operations, which passes improve and any memory is bound to."""
