"""gputopo.yaml: what may stand in it, and what it says.

`settings` is what the rest of the engine sees, `schema` and its neighbours declare the keys, and
the readers turn YAML into values: every mistake is named with file, line and key. Nothing is
imported here, since the process that acts for users needs a part of it only.
"""
