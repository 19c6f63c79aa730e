"""The one process that may act for users: it submits donors as the users of the jobs that borrow.

Root starts it; it imports what it needs and no more, takes one line from the engine, and asks
Slurm for everything that the line cannot be trusted with. docs/operations.md says what it could do.
"""
