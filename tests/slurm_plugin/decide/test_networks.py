"""Which networks count: slurmctld's, the file's."""

from gres_topology import Domain, Network
from gres_topology.slurm_files.network import BLOCK, Networks
from slurm_plugin.decide.networks import NetworksInForce


def network(*nodes: str, kind: str = BLOCK, source: str = "file") -> Network:
    return Network((Domain("b1", 0, frozenset(nodes)),) if nodes else (), source, kind)


def only(one: Network, **more: Network) -> Networks:
    return Networks({"": one, **more}, one)


def test_a_site_that_names_no_network_leaves_nodes_to_slurm():
    found = NetworksInForce()
    found.take(only(network("n1")), 5.0)
    assert found.of("") is None
    assert found.status() == {}


def test_what_slurmctld_has_in_force_counts_more_than_the_file():
    file, told = network("n1"), network("n2", source="scontrol")
    found = NetworksInForce(only(file))
    assert found.of("") is file
    found.take(only(told), 5.0)
    assert found.of("") is told
    assert found.status() == {
        "since": 5.0,
        "topologies": {"": {"kind": "block", "from": "scontrol"}},
    }


def test_the_file_counts_where_slurmctld_weighs_no_network_or_cannot_say():
    """Of a flat network scontrol shows nothing."""
    file, named = network("n1"), network("n9")
    found = NetworksInForce(only(file, racks=named))
    found.take(only(network(kind="")), 5.0)
    assert found.of("") is file
    assert found.of("racks") is named
    assert found.of("gone") is None
    told = network("n3")
    found.take(only(network(kind=""), racks=told), 6.0)
    assert (found.of(""), found.of("racks")) == (file, told)


def test_an_answer_that_fails_for_once_changes_nothing(caplog):
    told = network("n2")
    found = NetworksInForce(only(network("n1")))
    found.take(only(told), 5.0)
    found.take(only(network(kind="")), 6.0)
    assert found.of("") is told
    assert (found.since, caplog.text) == (5.0, "")


def test_a_topology_that_is_slurms_alone_stays_slurms():
    found = NetworksInForce(only(network("n1")))
    ring = network(kind="ring")
    found.take(only(ring), 5.0)
    assert found.of("") is ring


def test_the_same_again_changes_nothing_and_what_moved_is_said_once(caplog):
    """Tables of the network are kept by the object."""
    found = NetworksInForce(only(network("n1")))
    found.take(only(network("n2")), 5.0)
    first = found.of("")
    found.take(only(network("n2")), 6.0)
    assert found.of("") is first
    assert (found.since, caplog.text) == (5.0, "")
    found.take(only(network("n3")), 7.0)
    assert found.since == 7.0
    assert caplog.text.count("another topology in force") == 1
