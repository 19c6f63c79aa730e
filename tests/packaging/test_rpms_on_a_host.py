"""The RPMs, by Debian's rpm on a host with Debian's Slurm: what their scripts do and refuse.

What they require has other names on Debian, so nothing of that is checked (--nodeps).
"""

import pytest
from site_host import EDIT, Host, gpus_of_a_job, is_advised

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long("builds the packages, and installs and removes them in a container"),
    pytest.mark.timeout(900),
]

#: Its plugins want rights that a container does not have.
RPM = "rpm --noplugins"
NEEDED = "rpm lua-socket python3-click python3-msgspec python3-networkx python3-numpy"
INSTALL = (
    f"apt-get install -y --no-install-recommends {NEEDED} python3-rich python3-yaml"
    f" && {RPM} -i --nodeps slurm-gputopo*.rpm"
)
ALL = "slurm-gputopo slurm-gputopo-node slurm-gputopo-select slurm-gputopo-spank"
REQUIRED = "required /usr/lib/slurm-gputopo/spank/gputopo.so"


@pytest.fixture
def host(image, debs):
    """With the RPMs that are built beside the Debian packages."""
    with Host(image, sorted(debs[0].parent.glob("*.rpm"))) as host:
        yield host


def test_from_install_to_removal(host):
    conf = host.run("cat /etc/slurm/slurm.conf")
    host.run(INSTALL)
    assert host.run("cat /etc/slurm/slurm.conf") == conf
    host.run(EDIT)
    host.run("gputopo enable --apply")
    host.start_engine()
    host.restart_slurmctld()
    assert " -> " not in host.run("gputopo doctor")
    assert is_advised(host)
    edited = host.run("cat /etc/slurm/gputopo.yaml")

    # The old one's script runs in an upgrade, too, and has to let it through.
    host.run(f"{RPM} -U --nodeps --replacepkgs slurm-gputopo*.rpm")
    assert host.run("cat /etc/slurm/gputopo.yaml") == edited
    host.restart_slurmctld()
    assert is_advised(host)

    refused = host.try_run(f"{RPM} -e {ALL}")
    assert refused.returncode != 0
    assert "gputopo disable --apply --slurm-conf /etc/slurm/slurm.conf" in refused.stdout
    host.restart_slurmctld()
    # What the refusal advises is there.
    host.run("gputopo disable --apply --slurm-conf /etc/slurm/slurm.conf")
    host.restart_slurmctld()
    host.stop_engine()
    left = host.run("rpm -qa 'slurm-gputopo*'").split()
    host.run(f"{RPM} -e {' '.join(left)}")
    assert not host.run("rpm -qa 'slurm-gputopo*'")
    assert host.run("cat /etc/slurm/slurm.conf") == conf
    host.restart_slurmctld()
    assert gpus_of_a_job(host) == "0,1"
    assert host.run("find /usr/lib/slurm-gputopo -type f").split() == [
        "/usr/lib/slurm-gputopo/slurm/README"
    ]


def test_the_spank_plugin_stays_while_jobs_need_it(host):
    host.run("apt-get install -y --no-install-recommends rpm")
    host.run(f"{RPM} -i --nodeps slurm-gputopo-spank-*.rpm")
    host.write("/etc/slurm/plugstack.conf", f"{REQUIRED}\n")
    refused = host.try_run(f"{RPM} -e slurm-gputopo-spank")
    assert refused.returncode != 0
    assert "/etc/slurm/plugstack.conf says 'required'" in refused.stdout
    host.write("/etc/slurm/plugstack.conf", f"# {REQUIRED}\n")
    host.run(f"{RPM} -e slurm-gputopo-spank")
