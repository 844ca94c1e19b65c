"""A Ray that is kept between programs, with actors that have everything imported.

`nki-dist cluster start` leaves one process behind, the keeper (`keeper`): it starts a local Ray
and, in it, actors that simulate nothing yet. A program of the same user that would start a Ray
finds the keeper by a socket (`place`), joins that Ray if everything that counts is alike
(`fingerprint`), and borrows actors (`borrowed`). What has been borrowed is never lent again: it
ends with the loan, and a new process takes its place. So nothing of one program can be left for the
next.
"""
