"""Which parts of which nodes a site marks broken or slow, in one file.

`gputopo topology mark` writes it, the engine reads it whenever it changes.
"""
