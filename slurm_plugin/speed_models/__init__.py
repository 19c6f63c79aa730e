"""Fitted models of how fast jobs run on each shape (GENIE, section 6).

`database` keeps them with the runs that they were fitted from, `keep` fits and stores one, `rows`
predicts from one, `drawing` draws it. `profiling` makes the runs.
"""
