"""Patterns read from text: what is understood, and the one line for what is not.

The NCCL and nvidia-smi texts are made up in those tools' formats.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import PatternError
from policies.patterns import graph_file
from policies.patterns.pattern import PATTERNS

NCCL = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="22" typeintra="NVL">
    <channel>
      <gpu dev="0"/> <gpu dev="3"/> <gpu dev="2"/> <gpu dev="1"/>
    </channel>
    <channel>
      <gpu dev="0"/> <gpu dev="1"/> <gpu dev="2"/> <gpu dev="3"/>
    </channel>
  </graph>
  <graph id="1" pattern="1" crossnic="0" nchannels="1" speedintra="22" typeintra="NVL">
    <channel>
      <gpu dev="0"/> <gpu dev="2"/> <gpu dev="1"/> <gpu dev="3"/>
    </channel>
  </graph>
  <graph id="3" pattern="5" crossnic="0" nchannels="1" speedintra="22" typeintra="NVL">
    <channel>
      <gpu dev="0"/>
    </channel>
  </graph>
</graphs>
"""

TWO_NODES = """<graphs version="1"><graph id="0" pattern="4">
<channel><net dev="0"/><gpu dev="4"/><gpu dev="6"/><gpu dev="5"/><net dev="0"/></channel>
</graph></graphs>"""

#: Four GPUs in a square of NVLinks; GPU i's link 0 leads to i+1, link 1 to i-1.
ADDRESSES = [f"00000000:{bus:02X}:00.0" for bus in (6, 7, 0x0A, 0x0B)]


def targets(style: str = "-R") -> str:
    lines = []
    for gpu in range(4):
        lines.append(f"GPU {gpu}: Tesla V100-SXM2-16GB (UUID: GPU-{gpu})")
        for link, other in ((0, (gpu + 1) % 4), (1, (gpu - 1) % 4)):
            there = ADDRESSES[other]
            told = f"Remote Device {there}: Link {1 - link}" if style == "-R" else there
            lines.append(f"\t Link {link}: {told}")
    return "\n".join(lines) + "\n"


def counters(kib: dict[tuple[int, int], int], gpus: int = 4, style: str = "-gt d") -> str:
    """A reading; `kib` is what moved between two neighbours in each direction."""
    lines = []
    for gpu in range(gpus):
        lines.append(f"GPU {gpu}: Tesla V100-SXM2-16GB (UUID: GPU-{gpu})")
        for link, other in ((0, (gpu + 1) % 4), (1, (gpu - 1) % 4)):
            moved = kib.get((min(gpu, other), max(gpu, other)), 0)
            if style == "-gt d":
                lines.append(f"\t Link {link}: Data Tx: {moved} KiB")
                lines.append(f"\t Link {link}: Data Rx: {moved} KiB")
            else:
                lines.append(f"\t Link {link}: Rx0: {moved} KBytes, Tx0: {moved} KBytes")
    return "\n".join(lines) + "\n"


ZERO = counters({})
BUSY = {(0, 1): 90_000, (1, 2): 80_000, (2, 3): 100_000, (0, 3): 12}
TRAFFIC = targets() + counters({(0, 1): 5_000, (0, 3): 7}) + counters(BUSY)

READ = [
    ("an edge list", "0 1\n1 2\n", 3, [(0, 1), (1, 2)]),
    ("commas, dashes, comments, blank lines", "# a\n\n0-1\n2,1 # b\r\n", 3, [(0, 1), (1, 2)]),
    ("a byte order mark", "\ufeff0 1\n", 2, [(0, 1)]),
    ("NCCL's rings and trees together", NCCL, 4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    ("a ring that leaves the node by a NIC stays open", TWO_NODES, 3, [(0, 2), (1, 2)]),
    ("traffic, housekeeping left out", TRAFFIC, 4, [(0, 1), (1, 2), (2, 3)]),
    (
        "targets and counters as older drivers write them",
        targets("-p") + counters({}, style="-g 0") + counters(BUSY, style="-g 0"),
        4,
        [(0, 1), (1, 2), (2, 3)],
    ),
    ("idle GPUs are no ranks", targets() + ZERO + counters({(1, 2): 10_000}), 2, [(0, 1)]),
]


@pytest.mark.parametrize(
    ("text", "ranks", "edges"), [r[1:] for r in READ], ids=[r[0] for r in READ]
)
def test_read(text, ranks, edges):
    graph = graph_file.read(text, "file")
    assert graph.ranks == ranks
    assert list(graph.edges) == edges


def test_ranks_are_gpus_in_the_order_of_their_numbers():
    assert graph_file.read(TWO_NODES, "file").labels == (4, 5, 6)
    told = graph_file.read(targets() + ZERO + counters({(1, 2): 10_000}), "file")
    assert told.labels == (1, 2)


def test_addresses_may_be_stated_where_they_cannot_be_told_from_the_links():
    other = "\n".join(f"{at}, {ADDRESSES[at]}" for at in (0, 1, 2, 3)) + "\n"
    one = targets().replace(ADDRESSES[3], "00000000:C1:00.0")  # a link to the host, POWER9 say
    text = one + ZERO + counters({(0, 1): 10_000, (1, 2): 9_000})
    assert graph_file.read(other + text, "file").ranks == 3


WRONG = [
    ("empty", "", "f: empty; expected an edge list"),
    ("blank", "\n \n", "f: empty; expected an edge list"),
    ("comments only", "# 0 1\n", "f: no two GPUs talk"),
    ("prose", "hello world\n", "f:1: 'hello world'; expected an edge list, an NCCL graph XML"),
    ("a third column", "0 1\n1 2 50\n", "f:2: '1 2 50' is no edge; expected two ranks"),
    ("a negative rank", "0 -1\n", "f:1: '0 -1'; expected"),
    ("a self-loop", "0 1\n1 1\n", "f:2: rank 1 to itself"),
    ("the same edge", "0 1\n1 2\n0 1\n", "f:3: edge 0-1 was given in line 1 already"),
    ("the same edge the other way", "0 1\n1 0\n", "f:2: edge 0-1 was given in line 1 already"),
    ("two parts", "0 1\n2 3\n", "f: disconnected: no path from 0 to 2, 3"),
    ("a rank in no edge", "0 1\n1 3\n", "f: disconnected: no path from 0 to 2"),
    ("ranks beyond any node", "0 999999999\n", "f: rank 999999999; expected ranks from 0 to 255"),
    ("XML cut off", NCCL[:200], "f line 5: unclosed token; expected whole XML"),
    ("a topology", "<system version='1'></system>", "the machine's topology, not a pattern"),
    ("other XML", "<html></html>", "<html>; expected <graphs>"),
    ("no GPU number", NCCL.replace('dev="3"', 'dev="x"'), "gpu dev='x'; expected a number"),
    ("a GPU twice", NCCL.replace('dev="3"', 'dev="0"'), "line 3: a GPU twice in one channel"),
    ("switches only", NCCL.replace('"4"', '"5"').replace('"1" c', '"5" c'), "no two GPUs talk"),
    ("one reading", targets() + ZERO, "f: 1 reading of the counters"),
    ("no reading", targets(), "f: 0 reading of the counters"),
    ("no targets", ZERO + counters(BUSY), "f: no line says where links lead"),
    ("nothing moved", targets() + ZERO + ZERO, "nothing moved over NVLink"),
    ("counters reset", targets() + counters(BUSY) + ZERO, "fell from"),
    (
        "cut off",
        targets() + ZERO + counters(BUSY, gpus=3),
        "Rx of link 0 of GPU 3 is in one reading only",
    ),
    (
        "a driver that does not count",
        targets() + ZERO.replace("0 KiB", "N/A") + ZERO,
        "f:14: N/A: this driver or GPU does not count",
    ),
    (
        "behind switches",
        targets().replace(ADDRESSES[1], "00000000:C1:00.0").replace(ADDRESSES[3], ADDRESSES[2])
        + ZERO
        + counters(BUSY),
        "behind NVSwitches the counters do not say who talks to whom",
    ),
    (
        "two pairs apart",
        targets() + ZERO + counters({(0, 1): 900, (2, 3): 900}),
        "disconnected: no path from 0 to 2, 3 (traffic over PCIe is not counted)",
    ),
]


@pytest.mark.parametrize(("text", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_refused_in_one_line(text, message):
    with pytest.raises(PatternError) as caught:
        graph_file.read(text, "f")
    assert message in str(caught.value)
    assert str(caught.value).startswith("f")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("k", range(4, 9))
def test_what_is_written_as_an_edge_list_is_read_again_and_recognised(name, k):
    graph = graph_file.Graph("test", k, tuple(sorted(PATTERNS[name].edges(k))), tuple(range(k)))
    again = graph_file.read(graph_file.edge_list(graph), "file")
    assert again.edges == graph.edges
    same = graph_file.same_as(again)
    assert same is not None
    assert set(PATTERNS[same].edges(k)) == set(graph.edges)


@settings(max_examples=300)
@given(st.text(alphabet="0123456789 ,-#\n<>GPU:LinkTxRaKB/\t\r\0\u00e9", max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        graph = graph_file.read(text, "f")
    except PatternError as error:
        told = str(error)
    else:
        told = f"f{graph.kind}"
        assert 2 <= graph.ranks <= graph_file.MOST_RANKS
    assert told.startswith("f")
    assert "\n" not in told
