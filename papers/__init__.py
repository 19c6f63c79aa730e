"""Repeats the papers' evaluations beside the product: `gputopo experiment`, and what it found.

`experiments` runs them, `reproduction` holds each table, figure and claim of a paper against the
results, `command` is the command; `results` has the results that docs/reproduction.md and
docs/harm.md are made of.
"""
