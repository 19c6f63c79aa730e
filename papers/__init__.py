"""Repeats the papers' evaluations beside the product: `gputopo experiment`, and what it found.

`experiments` runs them, on `simulators` of their own where jobs are shaped or borrow GPUs;
`reproduction` holds each table, figure and claim of a paper against the results, `command` is the
command; `results` has the results that docs/reproduction.md and docs/harm.md are made of.
"""
