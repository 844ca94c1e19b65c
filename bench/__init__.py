"""Measurements of the simulator itself; `python -m bench` runs them all and prints ratios."""
