"""The lines about nodes: read and written, sets and digests, and what is refused."""

from __future__ import annotations

import base64
from dataclasses import replace
from random import Random

import pytest

from bench.request_lines import encode_request
from slurm_plugin.base.node_lines import MOST_NODES, NodesPart, TableChanges, digest, mix, places
from slurm_plugin.base.protocol import decode
from slurm_plugin.errors import ProtocolError

PART = NodesPart(
    *(3, 0xFEED, 1, 2, 0, ["n1", "n2", ".2"]),
    *([8, 8, 0], [0xFF, 0x3, 0], [1, 1, 1], ["a100", "", ""], True),
)
LINE = (
    b"nodes id=3 part=1 parts=2 first=0 hears=1 table=feed names=n1,n2,.2 total=8,8,0 free=ff,3,0"
    b" weight=1 type=a100,,\n"
)
PLACE = (
    b"place id=1 job=7 array=0 interactive=0 segment=0 shares=0 uid=1 postponed=0 waited_s=0"
    b" node=n1/8/ff/3/1"
)


def test_a_part_of_a_table_is_read_as_it_was_written():
    assert encode_request(PART) == LINE
    assert decode(LINE) == PART


def test_a_plugin_of_before_hears_nothing():
    assert decode(LINE.replace(b"hears=1 ", b"")) == replace(PART, hears=False)


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        (b"names=n1,n2,.2", b"names=n1,n2", "total= has 3 values for 2 nodes"),
        (b"names=n1,n2,.2", b"names=n1,,n2", "names= is no list of node names"),
        (b"names=n1,n2,.2 ", b"", "names= is no list"),
        (b"free=ff,3,0", b"free=1ff,3,0", "n1: free=1ff does not lie within 8 GPUs"),
        (b"free=ff,3,0", b"free=ff,-3,0", "free= is no list of values"),
        (b"free=ff,3,0", b"free=ff,,0", "free= is no list of values"),
        (b"weight=1", b"weight=1_0", "weight= is no list of values"),
        (b"weight=1", b"weight=99999999999", "weight= is no list of values"),
        (b"total=8,8,0", b"total=8,257,0", "does not lie within 257 GPUs"),
        (b"table=feed", b"table=0", "part 1 of 2 of table 0"),
        (b"table=feed", b"table=feedfeedfeedfeedf", "expected up to 16 hexadecimal digits"),
        (b"part=1", b"part=3", "part 3 of 2"),
        (b"parts=2", b"parts=65", "part 1 of 65"),
        (b"first=0", b"first=-1", "first= is '-1'"),
    ],
)
def test_a_part_that_cannot_be_is_refused(was, now, says):
    with pytest.raises(ProtocolError, match=says) as refused:
        decode(LINE.replace(was, now))
    assert refused.value.message_id == 3


def test_a_line_has_no_more_nodes_than_are_read_at_once():
    names = ",".join(f"n{at}" for at in range(MOST_NODES + 1)).encode()
    with pytest.raises(ProtocolError, match="4097 names; expected at most 4096"):
        decode(LINE.replace(b"n1,n2,.2", names))


def test_what_changed_is_read_as_it_was_written():
    changes = TableChanges(0xABC, 0x123, {12: 0x3F, 7: 0}, "0-3,7", 5)
    line = PLACE + b" table=abc state=123 changed=12:3f,7:0 heaviest=5 others=0-3,7\n"
    asked = decode(line)
    assert asked.changes == changes
    assert set(encode_request(asked).split()) == set(line.split())
    alone = decode(PLACE + b" table=abc state=123 others=1\n")
    assert alone.changes == TableChanges(0xABC, 0x123, {}, "1", None)
    assert decode(PLACE).changes is None


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("table=abc", "state=''; expected up to 16"),
        ("table=xyz state=1", "table='xyz'"),
        ("table=1 state=1 changed=1", "changed='1' is not INDEX:FREE"),
        ("table=1 state=1 changed=1:3,,", "changed='' is not INDEX:FREE"),
        ("table=1 state=1 heaviest=x", "heaviest= is 'x'"),
        (f"table=1 state=1 changed={','.join(['1:3'] * 513)}", "513 changes; expected at most 512"),
    ],
)
def test_changes_that_cannot_be_are_refused(keys, says):
    with pytest.raises(ProtocolError, match=says):
        decode(PLACE + f" {keys}\n".encode())


def test_a_set_of_nodes_is_ranges_or_a_bitmap():
    assert places("0-2,5", 6) == 0b100111
    assert places("", 6) == 0
    chosen = Random(1).getrandbits(12_500)
    raw = chosen.to_bytes((chosen.bit_length() + 7) // 8, "little")
    assert places("*" + base64.b64encode(raw).decode(), 12_500) == chosen
    assert len(base64.b64encode(raw)) < 2100


@pytest.mark.parametrize(
    "others", ["6", "0-6", "3-2", "a", "1,", "1--2", "-1", "*%", "*////", "*AA", "1;2", "1" * 9]
)
def test_a_set_that_cannot_be_is_refused(others):
    with pytest.raises(ProtocolError):
        places(others, 6)


def test_a_digest_follows_each_change():
    draw = Random(2)
    free = [draw.getrandbits(64) for _ in range(300)]
    kept = digest(free)
    assert digest([]) == 0
    for _ in range(200):
        at, now = draw.randrange(300), draw.getrandbits(64)
        kept ^= mix(at, free[at]) ^ mix(at, now)
        free[at] = now
    assert kept == digest(free)
    free[0], free[1] = free[1], free[0]
    assert kept != digest(free)


@pytest.mark.parametrize(
    ("index", "free", "mixed"),
    [
        (0, 0, 0x7AB40E090F363A7D),
        (12499, 0xFF, 0xD170740FFA636C75),
        (1, (1 << 64) - 1, 0xAB47721B00F39DDB),
        # The first number that splitmix64 gives from seed 0, as its finalizer's argument.
        (0x9E3779B97F4A7C14, 0xE220A8397B1DCDAF, 0),
    ],
)
def test_a_node_adds_the_same_as_in_the_plugin(index, free, mixed):
    assert mix(index, free) == mixed
