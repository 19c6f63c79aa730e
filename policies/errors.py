"""The one base exception of this folder, and its kinds."""


class PolicyError(ValueError):
    """A question no policy can answer as asked; the message says what to do."""


class HintError(PolicyError):
    """A hint that is refused: one line that names the key and lists what is allowed."""


class RegistryError(PolicyError):
    """A policy's name is unknown, or taken twice."""


class PatternError(PolicyError):
    """A file that describes no pattern; one line that names file and line."""


class ProfileError(PolicyError):
    """Measured runs or a stored model that cannot be used."""
