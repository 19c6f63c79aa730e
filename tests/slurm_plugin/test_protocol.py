"""The wire protocol: what goes in comes out, and nothing else gets in."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.request_lines import encode_request
from slurm_plugin.base import protocol, wire
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.base.protocol import FORMS, Notice, Place, SlotsKeys, Submit
from slurm_plugin.errors import ProtocolError

texts = st.text(max_size=200)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,30}", fullmatch=True)
numbers = st.integers(0, 10**15)


@st.composite
def asked_nodes(draw: st.DrawFn) -> CandidateNode:
    total = draw(st.integers(1, protocol.MAX_NODE_GPUS))
    free = draw(st.integers(0, (1 << total) - 1))
    own = free & draw(st.integers(0, (1 << total) - 1))
    return CandidateNode(draw(names), total, free, own, draw(st.integers(0, 2**32)))


places = st.builds(
    Place,
    candidates=st.lists(asked_nodes(), max_size=8, unique_by=lambda n: n.name).map(tuple),
    **dict.fromkeys(("id", "job", "array", "uid", "postponed", "waited_s"), numbers),
    **dict.fromkeys(("account", "partition", "type", "hint"), texts),
)
keys = st.builds(
    SlotsKeys, form=st.sampled_from(FORMS), begin=numbers, exclusive=st.booleans(), features=texts
)
submits = st.builds(
    Submit,
    slots=st.none() | keys,
    **dict.fromkeys(("id", "uid", "gpus", "nodes", "per_node", "tasks"), numbers),
    **dict.fromkeys(("user", "hint"), texts),
)
notices = st.builds(
    Notice,
    kind=st.sampled_from(["started", "ended"]),
    job=numbers,
    array=numbers,
    gpus=st.dictionaries(names, st.integers(0, 2**64 - 1), max_size=5),
)


@given(st.one_of(places, submits, notices))
def test_a_request_survives_the_wire(message):
    line = encode_request(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.decode(line) == message


@given(texts)
def test_any_text_survives_quoting_as_printable_ascii(text):
    quoted = wire.quote(text)
    assert all(0x21 <= ord(c) <= 0x7E for c in quoted)
    assert wire.unquote(quoted) == text


@given(places, st.data())
def test_a_damaged_request_is_read_or_refused(place, data):
    line = bytearray(encode_request(place))
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        protocol.decode(bytes(line))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"place id=1 job=2 array=0 uid=0 postponed=0 waited_s=0 node=n1/8/1ff/1/1", "within"),
        (b"place id=1 job=2 array=0 uid=0 postponed=0 waited_s=0 node=n1/8/0f/10/1", "within"),
        (b"place id=1 job=2 array=0 uid=0 postponed=0 waited_s=0 node=n1/8/0x1/1/1", "NAME/TOTAL"),
        (b"place id=1 job=2 array=0 uid=0 postponed=0 waited_s=0 node=n/1/1/1/1 node=n/1/1/1/1",
         "twice"),
        (b"place id=1 job=-2 array=0 uid=0 postponed=0 waited_s=0", "decimal"),
        (b"place id=1 array=0 uid=0 postponed=0 waited_s=0", "job= is missing"),
        (b"ping", "id= is missing"),
        (b"ping id=1 id=2", "twice"),
        (b"ping  id=1", "not key=value"),
        (b"ping id=1 x", "not key=value"),
        (b"ping id=1 =x", "not key=value"),
        (b"launch id=1", "no verb"),
        (b"ping id=1\tx=2", "outside"),
        (b"submit id=1 uid=0 gpus=1 nodes=1 per_node=1 tasks=1 hint=%G1", "two hexadecimal"),
        (b"submit id=1 uid=0 gpus=1 nodes=1 per_node=1 tasks=1 hint=" + b"x" * 5000, "longer"),
        (b"submit id=1 uid=0 gpus=1 nodes=1 per_node=1 tasks=1 user=" + b"x" * 1025, "longer"),
    ],
)  # fmt: skip
def test_a_wrong_request_says_what_is_wrong(line, says):
    with pytest.raises(ProtocolError, match=says):
        protocol.decode(line)


def test_a_refused_request_keeps_its_id_for_the_reply():
    with pytest.raises(ProtocolError) as caught:
        protocol.decode(b"place id=77 job=x")
    assert caught.value.message_id == 77


def test_a_line_over_the_limit_is_refused():
    with pytest.raises(ProtocolError, match="longer"):
        protocol.decode(b"ping id=1 x=" + b"a" * protocol.MAX_REQUEST_BYTES)


def test_replies_look_as_the_protocol_says():
    use = protocol.Use({"n1": 0b1001}, {"n2": 0b11}, "double NVLink")
    assert use.encode(5) == b"use id=5 node=n1/9 alt=n2/3 note=double%20NVLink\n"
    assert protocol.WaitFor(30, "soon").encode(6) == b"wait id=6 s=30 note=soon\n"
    assert protocol.WaitFor(30, max_wait_s=600).encode(6) == b"wait id=6 s=30 max_wait_s=600\n"
    assert protocol.Pass().encode(7) == b"pass id=7\n"
    assert protocol.Refuse("no\nkey").encode(8) == b"refuse id=8 message=no%20key\n"
    assert protocol.Ok({"set.features": "a=b"}).encode(9) == b"ok id=9 set.features=a=b\n"


@given(texts)
def test_a_note_never_breaks_the_bracket_it_goes_into(text):
    note = wire.clean_note(text)
    assert len(note.encode()) <= wire.MAX_NOTE_BYTES
    assert not set(note) & set("[]|\n")
