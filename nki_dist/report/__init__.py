"""Shows profiles and records: pages (one HTML file that fetches nothing), and notebooks' tables.

Works on a profile's numbers (`Profile.to_dict()`) and its timeline, and knows nothing of launches.
Invariant: equal profiles and equal sources give equal bytes; no host clock is read. Nothing is
imported here: profiles import these files, which import what profiles are made of.
"""
