"""gputopo.yaml: what may stand in it, and what it says.

Every key is declared once, as a field of a settings class (`key`): the file in `settings`, its
sections in `sections`, `remote` and `genie`. The readers turn YAML into these classes; `reference`
prints the keys. Nothing is imported here: the process that acts for users needs only a part of it.
"""
