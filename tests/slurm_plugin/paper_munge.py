"""A stand-in for munge: it knows who sealed what, and opens everything once."""

import base64
import os
import secrets

from slurm_plugin.errors import Refused
from slurm_plugin.node.remote.handshake import Munge


class PaperMunge(Munge):
    """Seals as `uid`; all of one `seen` are one munged."""

    def __init__(self, uid: int | None = None, seen: set[str] | None = None) -> None:
        self.uid = os.getuid() if uid is None else uid
        self.seen = set() if seen is None else seen

    def seal(self, text: str) -> str:
        word = f"{self.uid} {secrets.token_hex(4)} {text}"
        return base64.b64encode(word.encode()).decode()

    def opened(self, sealed: str) -> tuple[int, str]:
        try:
            uid, _, text = base64.b64decode(sealed, validate=True).decode().split(" ", 2)
            found = int(uid), text
        except ValueError as error:
            raise Refused("munge: Invalid credential") from error
        if sealed in self.seen:
            raise Refused("munge: Replayed credential")
        self.seen.add(sealed)
        return found
