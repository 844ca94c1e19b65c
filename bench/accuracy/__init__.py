"""Simulated time compared with time measured on Trainium: `python -m bench.accuracy`.

    data/*.tsv -> rows -> builders (library, tutorials, public) -> simulate -> data/simulated.jsonl
    data/simulated.jsonl -> judge, widths -> page, plot -> docs/accuracy.md, docs/accuracy.svg

The second half needs no kernels and takes a second, so tests compare the page, the plot and the
table of widths in `nki_dist/timing/band.py` with what it makes of the stored results.
"""
