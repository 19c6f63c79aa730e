"""The order of the queue: whose shorter work passes (`passing`), by run times that were learned.

`learned_durations` keeps what users' own jobs took; policies look ahead by it, too.
"""
