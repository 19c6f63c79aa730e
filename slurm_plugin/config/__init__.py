"""gputopo.yaml: what may stand in it, and what it says.

Every key is declared once, as a field of a settings class (`key` says how): the whole file in
`settings`, its sections in `sections`, `remote` and `genie`. The readers turn YAML into these
classes and name every mistake with file, line and key; `reference` prints the keys for people and
editors. Nothing is imported here, since the process that acts for users needs only a part of it.
"""
