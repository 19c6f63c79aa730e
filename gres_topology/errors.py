"""The one base exception of this folder."""


class TopologyError(ValueError):
    """A topology could not be read or does not make sense.

    The message says what was read (file, line, cell), what was expected, and what to do.
    """
