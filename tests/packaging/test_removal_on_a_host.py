"""Packages that are removed in any order: slurmctld, slurmd and Slurm's commands start again."""

from typing import NamedTuple

import pytest
from site_host import EDIT, INSTALL, Host

PLUGINS = "/usr/lib/slurm-gputopo/slurm"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long("builds the packages, and installs and removes them in containers"),
    pytest.mark.timeout(900),
]


class Layout(NamedTuple):
    """Where a site has its slurm.conf, the file that names PluginDir, and how it is made."""

    conf: str
    names_us: str
    make: str


LAYOUTS = {
    "an included file": Layout(
        "/etc/slurm/slurm.conf",
        "/etc/slurm/parts.inc",
        "scontrol show config | sed -n 's/^PluginDir *= */PluginDir=/p' >/etc/slurm/parts.inc;"
        " printf '\\nInclude parts.inc\\n' >>/etc/slurm/slurm.conf",
    ),
    "-f elsewhere": Layout(
        *("/srv/slurm/slurm.conf",) * 2, "install -d /srv/slurm; mv /etc/slurm/*.conf /srv/slurm/"
    ),
    "another cluster": Layout(
        *("/etc/slurm-b/slurm.conf",) * 2,
        "install -d /etc/slurm-b; mv /etc/slurm/*.conf /etc/slurm-b/",
    ),
}


def enabled(host: Host, layout: Layout) -> None:
    host.run(INSTALL)
    host.run(EDIT)
    host.run(f"SLURM_CONF={layout.conf} gputopo enable --apply")
    assert PLUGINS in host.run(f"cat {layout.names_us}")
    host.reboot_slurm(layout.conf)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_in_the_wrong_order_slurm_starts_after_each_step(host, layout):
    host.run(layout.make)
    host.reboot_slurm(layout.conf)
    enabled(host, layout)
    refused = host.try_run("apt-get purge -y 'slurm-gputopo*'")
    assert refused.returncode != 0
    assert f"gputopo disable --apply --slurm-conf {layout.conf}" in refused.stdout
    # What the refusal advises is there.
    host.run("gputopo --version")
    host.reboot_slurm(layout.conf)
    host.run("apt-get remove -y slurm-gputopo-node")
    assert host.run(f"ls {PLUGINS}").split() == ["README"]
    host.reboot_slurm(layout.conf)
    # No link is in the way any more, and PluginDir still names us.
    script = layout.conf.replace("slurm.conf", "job_submit.lua")
    host.run(f"rm {script}; sed -i 's/^JobSubmitPlugins=.*//' {layout.conf}")
    host.reboot_slurm(layout.conf)
    said = host.run("apt-get purge -y 'slurm-gputopo*'")
    if f"{PLUGINS} stays" in said:
        # Unless the refused purge was as far as that package.
        assert "scontrol show config" in said or layout.names_us in said
    host.reboot_slurm(layout.conf)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_by_the_book_nothing_is_left_and_slurm_starts(host, layout):
    host.run(layout.make)
    host.reboot_slurm(layout.conf)
    before = host.run(f"cat {layout.names_us}")
    enabled(host, layout)
    host.run(f"gputopo disable --apply --slurm-conf {layout.conf}")
    host.reboot_slurm(layout.conf)
    assert " stays" not in host.run("apt-get purge -y 'slurm-gputopo*'")
    assert host.try_run(f"ls {PLUGINS}").returncode != 0
    assert host.run(f"cat {layout.names_us}") == before
    host.reboot_slurm(layout.conf)


def test_slurm_starts_after_a_purge_while_nothing_of_it_runs(host):
    """Nobody can be asked: what files say counts."""
    conf = "/srv/slurm/slurm.conf"
    own = host.run("scontrol show config | sed -n 's/^PluginDir *= *//p'").strip()
    host.run(f"install -d /srv/slurm; mv /etc/slurm/*.conf /srv/slurm/; echo >>{conf}")
    host.run(f"echo PluginDir={PLUGINS}:{own} >>{conf}")
    host.write("/etc/default/slurmd", f'SLURMD_OPTIONS="-f {conf}"\n')
    host.run("apt-get install -y --no-install-recommends ./slurm-gputopo-node_*.deb")
    host.stop_slurm()
    said = host.run("apt-get purge -y slurm-gputopo-node")
    assert f"PluginDir of {conf} names it" in said
    host.reboot_slurm(conf)


def test_disable_helps_a_slurmctld_that_does_not_start(host):
    """As docs/faults.md has it: the directory that PluginDir names is gone."""
    conf = "/etc/slurm/slurm.conf"
    before = host.run(f"cat {conf}")
    host.run(f"{INSTALL} && {EDIT} && gputopo enable --apply")
    host.stop_slurm()
    host.run(f"mv {PLUGINS} /root/gone")
    assert host.try_run("slurmctld").returncode != 0
    host.run(f"gputopo disable --apply --slurm-conf {conf}")
    assert host.run(f"cat {conf}") == before
    host.reboot_slurm(conf)
