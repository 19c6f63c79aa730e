"""Takes out of Slurm's and our settings what others must not have: passwords, tokens, keys."""

from __future__ import annotations

import re

OUT = "(taken out)"
#: Values that are none, or are out already.
_NONE = ("(null", "(taken", "N/A")
_WORDS = r"passw(?:or)?d|passphrase|secret|credential|private_?key|api_?key|access_?key|jwt"
#: Keys whose value is a secret, or may have one in it.
_KEY = rf"[\w.-]{{0,40}}(?:\wpass|{_WORDS}|tokens?)|[\w.-]{{0,40}}(?:{_WORDS})[\w.-]{{0,40}}"
#: Keys of slurm.conf and slurmdbd.conf of which nothing is shown.
_WHOLE = rf"(?:{_KEY}|Auth(?:Alt)?(?:Info|Param\w*)|\w*StorageLoc|JobComp(?:Loc|Params))"
_WHOLE_LINE = re.compile(rf"(?im)^([ \t]*{_WHOLE}[ \t]*=[ \t]*)(?!\(null\)|\(?none\)?$)(\S.*)$")
_PAIR = re.compile(
    rf"""(?i)(?<![\w.-])((?:{_KEY})["']?[ \t]*[=:][ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s,;]+)"""
)
_IN_URL = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{1,20}://)[^/\s@]{1,200}@")
_BEARER = re.compile(r"(?i)(\bbearer[ \t]+)[\w.+/=~-]{8,}")
_JWT = re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?")
#: What looks drawn at random, behind a key whose name says nothing.
_DRAWN = re.compile(
    r"(=)(?=[A-Za-z+/_-]*\d)(?=[\d+/_-]*[A-Za-z])(?!/)([A-Za-z0-9+_/-]{20,}=*)(?![\w/.=])"
)
_BLOCK = re.compile(r"-----BEGIN [^-\n]+-----.*?(?:-----END [^-\n]+-----|\Z)", re.S)


class Secrets:
    """Counts what it takes out."""

    def __init__(self) -> None:
        self.count = 0

    def text(self, text: str) -> str:
        """Any text, without what is named a secret or looks like one."""
        text = _BLOCK.sub(self._out, text)
        text = _IN_URL.sub(lambda match: self._out(match) + "@", text)
        for one in (_PAIR, _BEARER, _JWT):
            text = one.sub(self._out, text)
        return text

    def settings(self, text: str) -> str:
        """Lines `Key=value` of Slurm, of which some are a secret whatever is in them."""
        return self.text(_DRAWN.sub(self._out, _WHOLE_LINE.sub(self._out, text)))

    def _out(self, match: re.Match[str]) -> str:
        before = match[1] if match.re.groups else ""
        if match.re.groups > 1 and match[2].strip("\"'").startswith(_NONE):
            return match[0]
        self.count += 1
        return before + OUT
