"""The line in AdminComment that says what was chosen, by whom, and why."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_plugin.wire import MAX_NOTE_BYTES

#: Bytes kept for the policy's name and the beginning of its reason.
REASON_BYTES = 80


def use_note(gpus: Mapping[str, tuple[int, ...]], policy: str, reason: str) -> str:
    """`dgx1:0,3 by mapa: REASON`, GPUs in rank order by Slurm's index, at most 200 bytes.

    Of many nodes the first are named and the others counted.
    """
    shown: list[str] = []
    left = MAX_NOTE_BYTES - REASON_BYTES
    for name, indices in gpus.items():
        word = f"{name}:{','.join(map(str, indices))}"
        if len(word) + 1 > left:
            break
        shown.append(word)
        left -= len(word) + 1
    if len(shown) < len(gpus):
        shown.append(f"and {len(gpus) - len(shown)} more nodes")
    text = f"{' '.join(shown)} by {policy}: {reason}"
    return text.encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
