"""The Debian packages on a host with the distribution's Slurm: installed, upgraded, removed.

By hand, by systemd, by Ansible.
"""

import re
import time

import pytest
from ansible_run import ROLE, Play, need
from site_host import (
    EDIT,
    INSTALL,
    NODES,
    ROOT,
    BootedHost,
    Host,
    NotBootedError,
    gpus_of_a_job,
    is_advised,
)

#: A version before every other.
OLDER = "0.0.1"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long("builds the packages, and installs and removes them in containers"),
    pytest.mark.timeout(900),
]


#: Run on a host where daemons are started by hand, and on one with systemd.
ON_BOTH = pytest.mark.parametrize("host", [Host, BootedHost], indirect=True)


@ON_BOTH
def test_four_commands_from_the_distributions_slurm_to_the_best_pair_and_back(host):
    """apt, one edit, enable, restart; and nothing is left when all is taken away again."""
    before, conf = host.files(), host.run("cat /etc/slurm/slurm.conf")
    began = time.monotonic()
    host.run(INSTALL)
    nothing_has_happened(host, conf)
    host.run(EDIT)
    host.run("gputopo enable --apply")
    host.start_engine()
    host.restart_slurmctld()
    assert " -> " not in host.run("gputopo doctor")
    assert is_advised(host)
    print(f"from apt to the first job: {time.monotonic() - began:.0f} s")
    removal_is_refused_while_slurm_needs_us(host)
    host.run("gputopo disable --apply")
    host.restart_slurmctld()
    host.stop_engine()
    host.run("apt-get purge -y 'slurm-gputopo*' && apt-get autoremove --purge -y")
    assert host.run("cat /etc/slurm/slurm.conf") == conf
    assert not host.try_run("dpkg-query -W 'slurm-gputopo*' 2>/dev/null").stdout
    assert host.files() == before
    assert gpus_of_a_job(host) == "0,1"


def nothing_has_happened(host, conf):
    """Installing neither changes slurm.conf nor starts or enables anything."""
    assert host.run("cat /etc/slurm/slurm.conf") == conf
    assert not host.try_run("pgrep -f '[/]usr/bin/gputopo'").stdout
    assert not host.run("find /etc/systemd /etc/slurm -name '*gputopo*.service' -o -name '*.lua'")
    assert "mode: observe" in host.run("cat /etc/slurm/gputopo.yaml")


def removal_is_refused_while_slurm_needs_us(host):
    """Else the next start of slurmctld would fail."""
    refused = host.try_run("dpkg --remove --force-depends slurm-gputopo")
    assert refused.returncode != 0
    assert "gputopo disable --apply" in refused.stdout
    assert "ok installed" in host.run("dpkg-query -W -f '${Status}' slurm-gputopo")
    host.restart_slurmctld()


@pytest.mark.parametrize("host", [BootedHost], indirect=True)
def test_the_steps_to_watch_and_to_choose_work_as_written(host):
    """docs/steps.md, typed line by line; its node has GPUs of one machine of the catalog."""
    host.run(
        "sed -i 's/v100/h100/g; s/ Links=[-0-9,]*//' /etc/slurm/slurm.conf /etc/slurm/gres.conf"
    )
    host.run("systemctl restart slurmctld slurmd")
    host.wait_for("sinfo -h -o %t | grep -qx idle")
    for line in commands_of("Watch"):
        said = host.run(f"yes | {{ {line}; }}")  # As somebody whom apt-get asks whether to go on.
    assert " -> " not in said
    assert '- {nodes: "dgx1", topology: dgx-h100}' in host.run("cat /etc/slurm/gputopo.yaml")
    job = number_of_a_job(host)
    assert "(observe)" in host.run(f"gputopo explain {job}")
    partition = host.run("sinfo -h -o %R | head -n 1").strip()
    *change, explain = commands_of("Choose")
    for line in change:
        host.run(line.replace("gpu-test", partition))
    job = number_of_a_job(host)
    assert "(enforce)" in host.run(explain.replace("4711", job))


def number_of_a_job(host: Host) -> str:
    host.wait_for("sinfo -h -o %t | grep -qx idle")
    return host.run("srun -Q --gres=gpu:2 printenv SLURM_JOB_ID").strip()


def commands_of(step: str) -> list[str]:
    """The lines that docs/steps.md has people type below this heading."""
    page = (ROOT / "docs" / "steps.md").read_text(encoding="utf-8")
    return page.partition(f"\n## {step}")[2].partition("```\n")[2].partition("```")[0].splitlines()


@ON_BOTH
def test_an_upgrade_keeps_what_was_edited_and_leaves_no_old_file(host):
    """From a package of the same files under a lower version, with a module that is gone now."""
    host.run(
        f"""
        mkdir new older; mv *.deb new
        for deb in new/*.deb; do
            dpkg-deb -R $deb tree
            sed -i -E 's/(0\\.[0-9.]+)(\\+deb)/{OLDER}\\2/g' tree/DEBIAN/control
            root=tree/usr/lib/slurm-gputopo/slurm_plugin
            [ ! -d $root ] || echo 'GONE = 1' >$root/gone.py
            dpkg-deb -b tree older/$(basename $deb) >/dev/null; rm -rf tree
        done"""
    )
    host.run("apt-get install -y --no-install-recommends ./older/*.deb")
    assert OLDER in host.run("dpkg-query -W slurm-gputopo")
    host.run(EDIT)
    host.run("gputopo enable --apply")
    slurm_conf = host.run("cat /etc/slurm/slurm.conf")
    gone = "find /usr/lib/slurm-gputopo -name 'gone*'"
    assert "gone.cpython" in host.run(gone)
    host.run("apt-get install -y --no-install-recommends ./new/*.deb")
    assert OLDER not in host.run("dpkg-query -W 'slurm-gputopo*'")
    assert not host.run(gone)
    assert NODES in host.run("cat /etc/slurm/gputopo.yaml")
    assert host.run("cat /etc/slurm/slurm.conf") == slurm_conf
    host.start_engine()
    host.restart_slurmctld()
    assert is_advised(host)


def test_a_newer_slurm_is_held_back_or_takes_the_select_plugin_away(host):
    """With packages of that name and a higher version, which are made here."""
    host.run(INSTALL)
    version = host.run("dpkg-query -W -f '${Version}' slurmctld")
    newer = version.partition("-")[0] + ".99-1"
    host.run(
        f"""
        mkdir -p tree/DEBIAN repo
        dpkg-query -s slurmctld | sed '/^Status:/d; /^Conffiles:/,/^[^ ]/{{/^Conffiles:/d; /^ /d}};
            s/^Version:.*/Version: {newer}/' >tree/DEBIAN/control
        dpkg-deb -b tree repo/slurmctld.deb >/dev/null
        cd repo
        {{ dpkg-deb -f slurmctld.deb; echo 'Filename: ./slurmctld.deb'
           echo "Size: $(stat -c %s slurmctld.deb)"
           echo "SHA256: $(sha256sum slurmctld.deb | cut -d' ' -f1)"; }} >Packages
        echo 'deb [trusted=yes] file:/root/repo ./' >/root/repo.list
        chmod 755 /root"""
    )
    lists = "-o Dir::Etc::sourcelist=/root/repo.list -o Dir::Etc::sourceparts=-"
    lists += " -o Dir::State::lists=/root/lists"
    host.run(f"mkdir -p lists/partial && apt-get {lists} update")
    apt = f"apt-get {lists} -s"
    upgraded = host.run(f"{apt} upgrade")
    assert "kept back:\n  slurmctld" in upgraded
    assert "Inst slurmctld" not in upgraded
    asked = host.try_run(f"{apt} install slurmctld={newer}")
    assert asked.returncode != 0 or "Remv slurm-gputopo-select" in asked.stdout, asked.stdout
    assert "Remv slurm-gputopo " not in asked.stdout


@pytest.mark.parametrize("host", [BootedHost], indirect=True)
def test_systemd_keeps_an_engine_without_privileges_running(host):
    """Killed, standing still, reinstalled: it is started again, by itself."""
    host.run(INSTALL)
    host.run(EDIT)
    host.start_engine()
    host.run("systemctl enable --now gputopo-donors")
    first = host.engine("MainPID")
    assert host.run(f"ps -o user= -p {first}").strip() == "slurm"
    status = host.run(f"cat /proc/{first}/status")
    assert re.findall(r"^Cap\w+:\s+(\w+)$", status, re.M) == ["0" * 16] * 5
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    host.run("sed -i 's/mode: enforce/mode: observe/' /etc/slurm/gputopo.yaml")
    host.run("systemctl reload gputopo")
    host.wait_for("journalctl -u gputopo | grep 'reloaded /etc/slurm/gputopo.yaml'")
    assert host.engine("MainPID") == first
    a_wrong_file_is_refused_at_reload(host)
    assert host.engine("MainPID") == first
    # More often than systemd would start a unit that has a limit (five times in ten seconds).
    for restarts, trouble in enumerate(("KILL", "STOP", *("KILL",) * 5), 1):
        host.run(f"systemctl kill -s {trouble} gputopo")
        host.wait_for(f"[ $(systemctl show -P NRestarts gputopo) = {restarts} ] && gputopo status")
    before = host.engine("MainPID")
    host.run("apt-get install -y --reinstall --no-install-recommends ./slurm-gputopo_*.deb")
    host.run("gputopo status && systemctl is-active gputopo gputopo-donors")
    assert host.engine("MainPID") not in (before, "0")
    # What journalctl writes in place of a line that it does not show.
    assert "blob data" not in host.run("journalctl --no-pager -u gputopo -u gputopo-donors")
    host.stop_engine()
    assert "active" not in host.try_run("systemctl is-active gputopo gputopo-donors").stdout.split()


def a_wrong_file_is_refused_at_reload(host):
    """`systemctl reload` fails, and the engine goes on by what it has read."""
    host.run("cp /etc/slurm/gputopo.yaml good; echo 'sockte: /x' >>/etc/slurm/gputopo.yaml")
    assert host.try_run("systemctl reload gputopo").returncode != 0
    host.run("journalctl -u gputopo | grep 'sockte: unknown key'; gputopo status")
    host.run("cat good >/etc/slurm/gputopo.yaml; systemctl reload gputopo")


B = """\
socket: /run/gputopo-b/engine.sock
state_dir: /var/lib/gputopo-b
decision_log: {path: /var/log/gputopo-b/decisions.jsonl}
kill_switch: /etc/slurm-b/gputopo.disable
nodes: [{nodes: dgx1, topology: dgx1v, slurm_index: identity}]
partitions: {default: {mode: observe}}
"""
STATUS_B = (
    "SLURM_CONF=/etc/slurm-b/slurm.conf GPUTOPO_CONFIG=/etc/slurm-b/gputopo.yaml gputopo status"
)


@pytest.mark.parametrize("host", [BootedHost], indirect=True)
def test_the_engine_of_another_cluster_is_an_instance_of_the_unit(host):
    """Beside the first one: killed, upgraded with it, and stopped when the package goes."""
    host.run(INSTALL)
    host.run("install -d /etc/slurm-b; cp /etc/slurm/slurm.conf /etc/slurm-b/")
    host.write("/etc/slurm-b/gputopo.yaml", B)
    host.start_engine()
    host.run("systemctl enable --now gputopo@b")
    assert "observe" in host.run(STATUS_B)
    pid = "systemctl show -P MainPID gputopo@b"
    first = host.run(pid)
    assert host.run(f"ps -o user= -p {first}").strip() == "slurm"
    host.run("systemctl kill -s KILL gputopo@b")
    host.wait_for(f"[ $(systemctl show -P NRestarts gputopo@b) = 1 ] && {STATUS_B}")
    assert host.engine("NRestarts") == "0"
    second = host.run(pid)
    host.run("apt-get install -y --reinstall --no-install-recommends ./slurm-gputopo_*.deb")
    host.wait_for(STATUS_B)
    assert host.run(pid) not in (first, second)
    host.run("apt-get remove -y slurm-gputopo")
    assert "active" not in host.try_run("systemctl is-active gputopo gputopo@b").stdout.split()


def test_the_ansible_role_sets_up_a_host_of_slurmctld_and_one_of_slurmd(image, debs, tmp_path):
    """In check mode, for real, and again without a change; one with systemd and one without."""
    need("ansible-playbook")
    try:
        with BootedHost(image, []) as controller, Host(image, []) as node:
            hosts = {"controller": controller, "node": node}
            the_role_sets_up(hosts, Play(tmp_path, debs[0].parent, hosts))
    except NotBootedError as error:
        pytest.skip(str(error))


def the_role_sets_up(hosts, play):
    controller, conf = hosts["controller"], hosts["controller"].run("cat /etc/slurm/slurm.conf")
    for host in hosts.values():
        host.run("apt-get install -y --no-install-recommends python3-apt")
    assert all(play.changes("--check").values())
    installed = "dpkg-query -W -f '${Package} ' 'slurm-gputopo*' 2>/dev/null"
    assert not [name for name, host in hosts.items() if host.try_run(installed).stdout]
    assert controller.run("cat /etc/slurm/slurm.conf") == conf
    assert all(play.changes().values())
    ours = ["slurm-gputopo", "slurm-gputopo-node", "slurm-gputopo-select"]
    assert controller.run(installed).split() == ours
    assert hosts["node"].run(installed).split() == ours[1:2]
    controller.run("systemctl is-enabled gputopo && systemctl is-active gputopo")
    assert " -> " not in controller.run("gputopo doctor")
    assert is_advised(controller)
    assert play.changes() == {"controller": 0, "node": 0}


def test_the_ansible_role_is_as_ansible_lint_wants_it(tmp_path):
    need("ansible-lint")
    words = ["ansible-lint", "--offline", "--strict", "--profile", "production", "--nocolor", "-q"]
    done = Play(tmp_path).tool(*words, str(ROLE))
    assert done.returncode == 0, done.stdout


def test_the_units_are_what_systemd_reads(host):
    host.run(INSTALL)
    folder = host.run("dirname $(dpkg -L slurm-gputopo | grep /gputopo.service)").strip()
    said = host.try_run(f"systemd-analyze verify {folder}/gputopo.service").stdout
    said += host.try_run(f"systemd-analyze verify {folder}/gputopo-donors.service").stdout
    said += host.try_run(f"systemd-analyze verify {folder}/gputopo-web.service").stdout
    # An instance is named by a link.
    for name in ("gputopo", "gputopo-donors"):
        link = f"ln -s {folder}/{name}@.service /tmp/{name}@a.service"
        said += host.try_run(f"{link}; systemd-analyze verify /tmp/{name}@a.service").stdout
    # Newer than bookworm's systemd, which goes on without them.
    new = re.compile(r"Unknown key name '(RestartSteps|RestartMaxDelaySec)'")
    said = [line for line in said.splitlines() if "gputopo" in line and not new.search(line)]
    assert not said


def test_every_command_has_a_man_page_and_runs(host):
    host.run(INSTALL)
    assert "gputopo" in host.run("gputopo --version")
    listed = host.run("dpkg -L slurm-gputopo")
    assert "/usr/share/man/man1/gputopo-enable.1.gz" in listed
    assert "/usr/share/man/man5/gputopo.yaml.5.gz" in listed
    assert "/usr/share/doc/slurm-gputopo/docs/slots.md\n" in listed
    assert "/usr/share/bash-completion/completions/gputopo" in listed
    assert "/usr/share/gputopo/dashboards/site.json" in listed
    place = "gputopo place --machine dgx1v --free 0-7 --gpus 2"
    assert "0,3" in host.run(place)
    # Nobody else's modules stand for ours.
    host.run("mkdir -p /tmp/x && echo 'raise SystemExit(9)' >/tmp/x/click.py")
    host.run(f"cd /tmp/x && PYTHONPATH=/tmp/x {place}")
