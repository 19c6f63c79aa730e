"""What can be wrong on a host: doctor names it and what mends it, and so does the page.

On a host with systemd and the distribution's Slurm, one fault after the other: each is made as it
happens, and mended by the very command that doctor says, or by hand as it says.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import pytest
import yaml
from site_host import EDIT, INSTALL, ROOT, BootedHost, NotBootedError

import slurm_plugin
from slurm_plugin.serve.loops.neighbours import LONGEST_REST_S

ALERTS = Path(slurm_plugin.__file__).parent / "tell" / "monitoring" / "alerts.yaml"
PAGE = ROOT / "docs" / "faults.md"
YAML, CONF = "/etc/slurm/gputopo.yaml", "/etc/slurm/slurm.conf"
OURS, STATE, LOGS = "/usr/lib/slurm-gputopo/slurm", "/var/lib/gputopo", "/var/log/gputopo"
UNIT = "/etc/systemd/system/gputopo.service.d"
SOCKET, METRICS = "/run/gputopo/engine.sock", "127.0.0.1:9401"
SELECT = "select_cons_tres.so"
RELOAD, RESTART = "systemctl reload gputopo", "systemctl restart slurmctld"
#: A rule that goes by one reading, or by one count beside the one before.
RULE = re.compile(r"(increase\()?(\w+)(?:\{([^}]*)\})?(?:\[\w+\]\))? (==|>) (\d+)")


@dataclass(frozen=True)
class Fault:
    """One fault, and what is said of it."""

    name: str
    #: The command that makes it.
    breaks: str
    #: `CHECK: words` of doctor's line.
    says: str
    #: Words of doctor's advice; a command that mends it, where `undo` is empty.
    mends: str
    #: What somebody does who follows advice that is no command.
    undo: str = ""
    #: What the page says to do, where that is more than the advice.
    do: str = ""
    #: Words of `gputopo status`.
    status: str = ""
    #: The alert that fires if it stays.
    alert: str = ""
    #: Words of the engine's journal.
    journal: str = ""

    @property
    def row(self) -> str:
        """Its line of the page."""
        seen = [f"`status`: {self.status}"] if self.status else []
        seen += [self.alert] if self.alert else []
        seen += [f"journal: {self.journal}"] if self.journal else []
        do = self.do or f"`{self.mends}`"
        return f"| {self.says} | {self.name} | {'; '.join(seen) or 'nowhere'} | {do} |"


def edited(old: str, new: str) -> str:
    """gputopo.yaml with one text in place of another."""
    return f"sed -i 's|{old}|{new}|' {YAML}"


def in_slurm_conf(old: str, new: str) -> tuple[str, str]:
    """slurm.conf with one text in place of another, read by slurmctld; and as it was."""
    kept = "/root/slurm.conf.kept"
    breaks = f"cp -p {CONF} {kept}; sed -i 's|{old}|{new}|' {CONF}; {RESTART}"
    return breaks, f"cp -p {kept} {CONF}; {RESTART}"


TWO_NODES = edited("nodes: dgx1,", 'nodes: "dgx[1-2]",')
ONE_NODE = edited('nodes: "dgx.1-2.",', "nodes: dgx1,")
NOT_LISTED, LISTED = in_slurm_conf("^JobSubmitPlugins", "#JobSubmitPlugins")
WITHOUT_OURS, WITH_OURS = in_slurm_conf(f"^PluginDir={OURS}:", "PluginDir=")
OURS_LAST, OURS_FIRST = in_slurm_conf(rf"^PluginDir=\({OURS}\):\(.*\)", r"PluginDir=\2:\1")
CHANGED = edited("mode: enforce", "mode: observe")
AS_BEFORE = edited("mode: observe", "mode: enforce")

FAULTS = [
    Fault("the engine is stopped", "systemctl stop gputopo",
          f"socket: {SOCKET} is missing", "systemctl restart gputopo",
          status="the engine is not running", alert="GputopoEngineDown"),
    Fault("the kill switch is set", "touch /etc/slurm/gputopo.disable",
          "kill switch: /etc/slurm/gputopo.disable exists", "rm /etc/slurm/gputopo.disable",
          status="SWITCHED OFF by the kill switch", alert="GputopoSwitchedOff",
          do='who set it, and why? (`ls -l /etc/slurm/gputopo.disable`; jobs are fine meanwhile.) '
             'Then `rm /etc/slurm/gputopo.disable`'),
    Fault("gputopo.yaml has an unknown key", f"echo 'sockte: /x' >>{YAML}",
          "config: /etc/slurm/gputopo.yaml:14: sockte: unknown key", "fix this first",
          f"sed -i /sockte/d {YAML}", status="going on with what the engine read at",
          do='correct that line; `gputopo config check` until it is right; `systemctl reload '
             'gputopo` (`start` where the engine is down)'),
    Fault("gputopo.yaml was broken, and reloaded",
          f"echo 'sockte: /x' >>{YAML}; ! {RELOAD}",
          "config: /etc/slurm/gputopo.yaml:14: sockte: unknown key", "fix this first",
          f"sed -i /sockte/d {YAML}; {RELOAD}", status="going on with what the engine read at",
          journal="Reload failed for gputopo.service",
          do='the same'),
    Fault("gputopo.yaml was changed and not reloaded", CHANGED,
          "engine: /etc/slurm/gputopo.yaml changed since", RELOAD,
          status="NOT RELOADED since it changed"),
    Fault("only root can read gputopo.yaml", f"{AS_BEFORE}; {RELOAD}; chmod 600 {YAML}",
          "file: /etc/slurm/gputopo.yaml cannot be read by SlurmUser", f"chmod a+r {YAML}"),
    Fault("another program has the port of the metrics",
          "systemctl stop gputopo;"
          " setsid python3 -m http.server -b 127.0.0.1 9401 >/dev/null 2>&1 & sleep 2;"
          " systemctl start gputopo",
          "engine: the engine goes on without: metrics_listen", "systemctl restart gputopo",
          "pkill -f '[h]ttp.server'; sleep 1; systemctl restart gputopo",
          status="NOT LISTENING: metrics_listen", journal="metrics_listen",
          do='`ss -ltnp` says which; stop it, or give `metrics_listen` another port; then '
             '`systemctl restart gputopo`'),
    Fault("the engine's socket is open to all", f"chmod 0666 {SOCKET}",
          f"socket: {SOCKET} has mode 0666", f"chmod 0600 {SOCKET}"),
    Fault("the engine runs as another user than slurmctld (SlurmUser was renamed, say)",
          f"mkdir -p {UNIT}; printf '[Service]\\nUser=daemon\\nGroup=daemon\\n' >{UNIT}/user.conf;"
          " systemctl daemon-reload; systemctl restart gputopo",
          f"socket: {SOCKET} belongs to daemon, SlurmUser is slurm",
          "set User= and Group= of gputopo.service to SlurmUser, restart gputopo",
          f"rm -r {UNIT}; systemctl daemon-reload; systemctl restart gputopo",
          do='`systemctl edit gputopo`: `[Service]`, `User=` and `Group=` as in slurm.conf; '
             '`systemctl restart gputopo`'),
    Fault("the state directory is root's", f"chown root {STATE}",
          f"engine: the engine may not write in {STATE}", "give it to SlurmUser",
          f"chown slurm {STATE}", status=f"NOT WRITABLE: {STATE}",
          alert="GputopoFoldersNotWritable", journal=f"cannot be written: {STATE}",
          do='`chown -R slurm: /var/lib/gputopo` (your SlurmUser). A folder elsewhere also needs '
             '`ReadWritePaths=` (`systemctl edit gputopo`)'),
    Fault("the log's directory is root's", f"chown root {LOGS}",
          f"engine: the engine may not write in {LOGS}", "give it to SlurmUser",
          f"chown slurm {LOGS}", status=f"NOT WRITABLE: {LOGS}",
          alert="GputopoFoldersNotWritable", journal=f"cannot be written: {LOGS}",
          do='`chown -R slurm: /var/log/gputopo` (your SlurmUser)'),
    Fault("the decision log is root's (it was copied back, say)",
          f"chown root:root {LOGS}/decisions.jsonl; chmod 600 {LOGS}/decisions.jsonl",
          f"engine: the engine may not write {LOGS}/decisions.jsonl", "give it to SlurmUser",
          f"chown slurm {LOGS}/decisions.jsonl", status=f"NOT WRITABLE: {LOGS}/decisions.jsonl",
          alert="GputopoFoldersNotWritable", journal=f"cannot be written: {LOGS}/decisions.jsonl",
          do=f"`chown slurm: {LOGS}/decisions.jsonl` (your SlurmUser). An engine that has it open "
             "goes on until its next start or new file; then lines are lost"),
    Fault("the log's file system is full", f"mount -t tmpfs -o size=64k none {LOGS}",
          f"decision log: {LOGS}: 0 MB left", "free 64 MB or more", f"umount {LOGS}",
          do='free 64 MB or more; what matters here is `decisions.jsonl` and its older parts, '
             'which `gputopo report` reads. Jobs are placed as ever, and lines are lost'),
    Fault("the log's directory is gone", f"mv {LOGS} /root/gone",
          f"decision log: {LOGS}: No such file", f"make {LOGS} for SlurmUser",
          f"mv /root/gone {LOGS}", status=f"NOT WRITABLE: {LOGS}",
          do='`install -d -o slurm -g slurm -m 750 /var/log/gputopo`'),
    Fault("slurm.conf does not list lua", NOT_LISTED,
          "bridge: JobSubmitPlugins does not name lua", "gputopo enable --apply", LISTED,
          do='`gputopo enable --apply; systemctl restart slurmctld`, and slurm.conf to the other '
             'hosts as ever'),
    Fault("slurm.conf does not list lua any more, and slurmctld was not restarted since",
          f"sed -i 's/^JobSubmitPlugins/#JobSubmitPlugins/' {CONF}",
          f"slurm.conf: {CONF} has no JobSubmitPlugins", "take the change back",
          f"sed -i 's/^#JobSubmitPlugins/JobSubmitPlugins/' {CONF}",
          do="who took it out, and why? Until slurmctld's next start all is as before; then put it "
             "back, or `gputopo disable --apply` takes out the rest, too"),
    Fault("anybody may write gputopo.yaml", f"chmod a+rw {YAML}",
          f"file: anybody may write {YAML}", f"chmod go-w {YAML}",
          do=f"look at who wrote what into it (`ls -l`, a backup), then `chmod go-w {YAML}`"),
    Fault("job_submit.lua is gone", "mv /etc/slurm/job_submit.lua /root/",
          "bridge: /etc/slurm/job_submit.lua: No such file", "gputopo enable --apply",
          do='was it a script of yours? Restore it. If not, `gputopo enable --apply`. **Before '
             "slurmctld's next start: without the file it does not come up**"),
    Fault("your own script does not call ours",
          "mv /etc/slurm/job_submit.lua /root/;"
          " echo 'function slurm_job_submit() return 0 end' >/etc/slurm/job_submit.lua",
          "bridge: /etc/slurm/job_submit.lua is not ours and does not load ours",
          "call the bridge from it", "mv /root/job_submit.lua /etc/slurm/",
          do='[call the bridge from it](lua-bridge.md#with-a-job_submitlua-of-your-own), with the '
             '`pcall`'),
    Fault("your own script has a mistake",
          "mv /etc/slurm/job_submit.lua /root/;"
          " printf 'pcall(require, \"gputopo.bridge\")\\nretrun slurm.SUCCESS\\n'"
          " >/etc/slurm/job_submit.lua",
          "bridge: slurmctld does not start with this script: /etc/slurm/job_submit.lua:2:",
          "correct it before its next start", "mv /root/job_submit.lua /etc/slurm/",
          do='correct it. **Before slurmctld\'s next start: with this file it does not come up**'),
    Fault("SlurmUser cannot read job_submit.lua",
          "mv /etc/slurm/job_submit.lua /root/;"
          " echo 'pcall(require, \"gputopo.bridge\")' >/etc/slurm/job_submit.lua;"
          " chmod 600 /etc/slurm/job_submit.lua",
          "bridge: /etc/slurm/job_submit.lua cannot be read by SlurmUser",
          "chmod a+r /etc/slurm/job_submit.lua", "mv /root/job_submit.lua /etc/slurm/",
          do='`chmod a+r /etc/slurm/job_submit.lua`. **Before slurmctld\'s next start: with this '
             'file it does not come up**'),
    Fault("bridge and engine enforce in two ways",
          "echo 'enforcement = slots' >/etc/slurm/gputopo-bridge.conf",
          "enforcement: /etc/slurm/gputopo-bridge.conf says enforcement = slots",
          "set both to the same", "rm /etc/slurm/gputopo-bridge.conf",
          do='do not change how the site enforces now. Does gres.conf have a type for each GPU '
             '(`v100.s0`)? Then say `enforcement: slots` in gputopo.yaml and `systemctl restart '
             'gputopo`; else take that line out and `touch /etc/slurm/job_submit.lua`'),
    Fault("the select plugin's settings have an unknown key",
          "echo Socket=/x >/etc/slurm/gputopo-select.conf",
          "select plugin: /etc/slurm/gputopo-select.conf:1: 'Socket'",
          "key=value with one of", "rm /etc/slurm/gputopo-select.conf",
          do='correct that line ([select.md](select.md#settings)), then `systemctl restart '
             'slurmctld`'),
    Fault("SlurmUser cannot read the select plugin",
          f"chmod 600 {OURS}/select_cons_tres.so",
          f"select plugin: {OURS}/select_cons_tres.so cannot be read by SlurmUser",
          f"chmod a+r {OURS}/select_cons_tres.so", f"chmod 644 {OURS}/select_cons_tres.so",
          do=f'`chmod a+r {OURS}/select_cons_tres.so; systemctl restart slurmctld`'),
    Fault("the select plugin was upgraded, and slurmctld not restarted since",
          f"cp -p {OURS}/{SELECT} /tmp/; mv /tmp/{SELECT} {OURS}/{SELECT}",
          f"select plugin: {OURS}/{SELECT} was put there after slurmctld started", RESTART),
    Fault("PluginDir lacks our directory", WITHOUT_OURS,
          "select plugin: no select_cons_tres.so of ours in PluginDir", "gputopo enable --apply",
          WITH_OURS,
          do='`ls -d /usr/lib/slurm-gputopo/slurm` on each host that reads slurm.conf, whose '
             'daemons do not start without it; then `gputopo enable --apply; systemctl restart '
             'slurmctld`'),
    Fault("PluginDir has Slurm's own first", OURS_LAST,
          "select plugin: /usr/lib/x86_64-linux-gnu/slurm-wlm/select_cons_tres.so is found before",
          f"put {OURS} first in PluginDir", OURS_FIRST,
          do='put `/usr/lib/slurm-gputopo/slurm:` first in `PluginDir=`, then `systemctl restart '
             'slurmctld`'),
    Fault("a node has other GPUs than declared",
          f"{edited('topology: dgx1v', 'topology: minsky')}; {RELOAD}",
          "nodes: dgx1: Slurm has 8 GPUs, its topology minsky 4",
          "correct gputopo.yaml or Gres= in slurm.conf",
          f"{edited('topology: minsky', 'topology: dgx1v')}; {RELOAD}",
          status="1 left to Slurm", alert="GputopoNodesLeftToSlurm",
          do='`nvidia-smi -L` on the node says who is right. Correct gputopo.yaml and reload, or '
             '`Gres=` in slurm.conf and restart slurmctld and slurmd'),
    Fault("a node's topology is not collected yet",
          f"{edited('topology: dgx1v', 'topology: collected')}; {RELOAD}",
          "nodes: dgx1 is left to Slurm: not collected yet", "gputopo topology collect dgx1",
          f"{edited('topology: collected', 'topology: dgx1v')}; {RELOAD}",
          status="1 left to Slurm", alert="GputopoNodesLeftToSlurm",
          journal="dgx1 is left to Slurm's own choice",
          do='`gputopo topology collect dgx1`; it waits where the node has no idle CPU'),
    Fault("a node that Slurm does not have", f"{TWO_NODES}; {RELOAD}",
          "nodes: dgx2 is declared, Slurm does not know it",
          "take it out of nodes: in gputopo.yaml", f"{ONE_NODE}; {RELOAD}",
          do='was it lost from slurm.conf by mistake? If it is gone for good, take it out of '
             '`nodes:`, and reload'),
    Fault("a node with GPUs that is not declared",
          f"{edited('nodes: dgx1,', 'nodes: dgx2,')}; {RELOAD}",
          "nodes: dgx1 has 8 GPUs and is not declared", "declare it under nodes:",
          f"{edited('nodes: dgx2,', 'nodes: dgx1,')}; {RELOAD}",
          status="1 left to Slurm", alert="GputopoNodesLeftToSlurm",
          do='add it to `nodes:` ([configuration.md](configuration.md)), and reload; until then '
             'Slurm chooses there'),
    Fault("a partition that Slurm does not have",
          f"sed -i 's/^partitions:.*/&\\n  gone: {{mode: observe}}/' {YAML}; {RELOAD}",
          "partitions: gone is no partition of Slurm", "take it out of partitions:",
          f"sed -i '/^  gone:/d' {YAML}; {RELOAD}",
          do='was it lost from slurm.conf by mistake? If it is gone for good, take it out of '
             '`partitions:`, and reload'),
    Fault("the file of marks is damaged", f"echo x >>{STATE}/marks.jsonl",
          f"marks: {STATE}/marks.jsonl:1: JSON is malformed", "fix this first",
          f"rm {STATE}/marks.jsonl", journal="the marks read last stay",
          do='**do not restart the engine, do not delete the file**: what it read last still '
             'counts, and would be gone. Correct or delete that line alone; `gputopo topology '
             'marks` shows what counts'),
    Fault("a mark names a GPU that the node does not have",
          "echo '{\"node\":\"dgx1\",\"part\":\"gpu 9\",\"state\":\"broken\"}'"
          f" >>{STATE}/marks.jsonl",
          "marks: dgx1: gpu 9 broken: the node has no such part",
          "gputopo topology unmark dgx1 gpu 9", journal="mark of dgx1 is left out"),
    Fault("a node has lost a GPU",
          "sed -i.kept /fakegpu7/d /etc/slurm/gres.conf; systemctl restart slurmd",
          "nodes: dgx1: slurmd found 7 GPUs of 8", "restart slurmd",
          "mv /etc/slurm/gres.conf.kept /etc/slurm/gres.conf; systemctl restart slurmd; sleep 1;"
          " scontrol update nodename=dgx1 state=resume",
          do='drain it: `scontrol update nodename=dgx1 state=drain reason=gpu`. `nvidia-smi -L` '
             'and `dmesg` there; repair or reboot; `systemctl restart slurmd`; `scontrol update '
             'nodename=dgx1 state=resume`. To go on with seven: '
             '[topology.md](topology.md#gpus-that-slurmd-detects)'),
    Fault("slurmctld is down", "systemctl stop slurmctld",
          "slurm: scontrol show config: exit 1", "systemctl start munge slurmctld",
          alert="GputopoSlurmUnreachable", journal="Slurm could not be read",
          do='`systemctl status munge slurmctld; journalctl -u slurmctld -n 50`, then `systemctl '
             'start munge slurmctld`. It does not come up and names PluginDir or job_submit.lua: '
             '[below](#slurmctld-does-not-start)'),
    Fault("munge is down", "systemctl stop munge",
          "slurm: scontrol show config: exit 1", "systemctl start munge slurmctld",
          alert="GputopoSlurmUnreachable",
          do='the same'),
    Fault("an upgrade that was not finished",
          "sed -i 's/^Version: /&9./' /usr/lib/slurm-gputopo/slurm_gputopo*/METADATA",
          "engine: the engine that runs is of version", "systemctl restart gputopo",
          "sed -i 's/^Version: 9./Version: /' /usr/lib/slurm-gputopo/slurm_gputopo*/METADATA"),
    Fault("Slurm goes by a topology.conf, the engine by none",
          "echo 'SwitchName=s1 Nodes=dgx1' >/etc/slurm/topology.conf;"
          f" echo TopologyPlugin=topology/tree >>{CONF}; {RESTART}",
          "network: TopologyPlugin is topology/tree, Slurm goes by /etc/slurm/topology.conf",
          "topology_conf: /etc/slurm/topology.conf in gputopo.yaml",
          f"rm /etc/slurm/topology.conf; sed -i /TopologyPlugin/d {CONF}; {RESTART}",
          do='add `topology_conf: /etc/slurm/topology.conf` to gputopo.yaml, and reload'),
    Fault("GPUs are to be lent to jobs of other nodes, and the service for it does not run",
          f"echo 'remote: {{allow: yes}}' >>{YAML}; {RELOAD}",
          "remote: nothing is lent", "systemctl enable --now gputopo-donors",
          f"sed -i /^remote/d {YAML}; {RELOAD}", journal="remote: nothing is lent",
          do='`systemctl enable --now gputopo-donors`, a root service that submits jobs as users: '
             'read [remote-setup.md](remote-setup.md) first. Without it nothing is lent, and '
             'nothing else is missing'),
]  # fmt: skip


def test_the_page_has_each_of_them():
    _, _, text = PAGE.read_text().partition("\n## What doctor says\n")
    text, _, _ = text.partition("\n## ")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert sorted({*rows} - {rows[0]}) == sorted(fault.row for fault in FAULTS)


@pytest.fixture(scope="module")
def site(image, debs) -> Iterator[BootedHost]:
    """A host on which all is well, and a job has been submitted."""
    try:
        with BootedHost(image, debs) as host:
            host.run(INSTALL)
            host.run("apt-get install -y --no-install-recommends python3-prometheus-client")
            host.run(f"{EDIT}; echo 'metrics_listen: {METRICS}' >>{YAML}")
            host.run("gputopo enable --apply")
            host.start_engine()
            host.restart_slurmctld()
            host.run("srun -Q --gres=gpu:2 true")
            yield host
    except NotBootedError as error:
        pytest.skip(str(error))


@pytest.mark.cluster
@pytest.mark.long("six minutes in a container with systemd")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_is_wrong_is_named_and_mended(site, fault):
    whole(site)
    at, before = site.run("date +%s").strip(), read(site)
    site.run(fault.breaks)
    try:
        site.wait_for(f"gputopo doctor | grep -qF {quote(fault.says)}")
        advice = of_check(site, fault.says.partition(":")[0])
        assert fault.mends in advice
        site.wait_for(f"gputopo status 2>&1 | grep -qF {quote(fault.status)}")
        log = f"journalctl -q -o cat -u gputopo --since @{at} | grep -qF {quote(fault.journal)}"
        if fault.journal:
            site.wait_for(log)
        if fault.alert:
            until_it_fires(site, fault.alert, before)
    finally:
        site.run(fault.undo or fault.mends)
    whole(site)


def whole(site: BootedHost) -> None:
    """Doctor finds nothing at all, which after a restart takes some seconds."""
    site.wait_for("gputopo doctor --quiet | tee /tmp/said; grep -qx 'nothing to fix' /tmp/said")


def of_check(site: BootedHost, check: str) -> str:
    """What doctor says to do; nothing else is wrong than what this check found, or follows."""
    lines = site.try_run("gputopo doctor --quiet").stdout.splitlines()
    found = {line[6:].partition(":")[0] for line in lines if re.match(r"(fail|warn)  ", line)}
    follows = {"socket": {"engine"}, "engine": {"decision log"}, "decision log": {"engine"}}
    assert check in found <= {check, *follows.get(check, ())}, lines
    return "\n".join(line for line in lines if line.startswith("      -> "))


# -- metrics -----------------------------------------------------------------


def read(site: BootedHost) -> dict[str, float]:
    """The engine's metrics now; none where it does not answer."""
    script = (
        f"import urllib.request as u; print(u.urlopen('http://{METRICS}/metrics').read().decode())"
    )
    text = site.try_run(f'python3 -c "{script}"').stdout
    pairs = (line.rpartition(" ") for line in text.splitlines() if line.startswith("gputopo_"))
    return {name: float(value) for name, _, value in pairs}


def total(metrics: dict[str, float], name: str, label: str) -> float:
    """The sum of a metric's samples with this label."""
    return sum(
        value
        for sample, value in metrics.items()
        if sample.partition("{")[0] == name and label in sample
    )


def until_it_fires(site: BootedHost, name: str, before: dict[str, float]) -> None:
    """Until the rule holds that Prometheus would go by; how long it has to is left out.

    After a reading of Slurm's queue that took long the engine rests.
    """
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    [rule] = [rule["expr"] for rule in group["rules"] if rule.get("alert") == name]
    until_s = time.monotonic() + LONGEST_REST_S + 30
    while time.monotonic() < until_s:
        now = read(site)
        if name == "GputopoEngineDown":
            holds = not now
        else:
            grows, metric, label, sign, bound = RULE.match(rule).groups()
            value = total(now, metric, label or "")
            value -= total(before, metric, label or "") if grows else 0.0
            holds = value == float(bound) if sign == "==" else value > float(bound)
        if holds:
            return
        site.run("sleep 0.5")
    raise AssertionError(f"{rule}: not so with {now}")
