"""Fitted models of how fast jobs run on each shape (GENIE, section 6).

`database` fits them and keeps them with their runs, `predictions` asks one, `drawing` draws it.
`act/profiling` makes the runs.
"""
