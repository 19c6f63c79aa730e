"""A host with the distribution's slurmctld and slurmd in one container, and nothing of ours yet.

`BootedHost` runs systemd, as a real host does. It needs CAP_SYS_ADMIN and the host's cgroups, which
not every container engine gives. `Host` needs nothing: where an administrator says `systemctl`, its
methods start and end the daemons by hand.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from slurm_cluster.description import PACKAGE, Description

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = str(ROOT / "slurm_cluster" / "cluster.sh")
NAME = "dgx1"
#: What an administrator types on a host of slurmctld (docs/packages.md).
PACKAGES = " ".join(f"./slurm-gputopo{part}_*.deb" for part in ("", "-node", "-select"))
INSTALL = f"apt-get install -y --no-install-recommends {PACKAGES}"
NODES = "nodes: [{nodes: dgx1, topology: dgx1v, slurm_index: identity}]"
EDIT = f"sed -i 's/^nodes:.*/{NODES}/; s/mode: observe/mode: enforce/' /etc/slurm/gputopo.yaml"
#: So long a host has for the first job of which the engine is asked in time, in seconds.
ADVISED_S = 60.0
#: What belongs to no package, or to Slurm while it runs.
_NOT_COMPARED = (
    *("/proc", "/sys", "/dev", "/tmp", "/root", "/var/cache", "/var/spool"),
    *("/run/lock", "/run/systemd", "/run/slurm", "/var/log/slurm", "/var/lib/slurm"),
    *("/run/munge", "/var/log/munge", "/var/lib/munge"),
    *("/var/lib/apt", "/var/lib/dpkg", "/var/log/apt"),
)
#: What is known of a host on which something did not come about.
_STATE = (
    "sinfo -N -o '%N %T %E'; scontrol show node; ps -ef;"
    " tail -n 20 /var/log/slurm/*.log /home/slurmd.*.log; journalctl -q -n 40 2>/dev/null"
)


class Host:
    """One container; `with Host(image, packages) as host`."""

    options: tuple[str, ...] = ("--init",)
    command: tuple[str, ...] = ("sleep", "infinity")

    def __init__(self, image: str, packages: list[Path]) -> None:
        self.image = image
        self.packages = packages
        self.id = ""

    def __enter__(self) -> Host:
        words = ["docker", "run", "-d", *self.options, "--hostname", NAME]
        words += ["--label", f"gputopo.checkout={ROOT}", self.image, *self.command]
        self.id = _output(words).strip()
        try:
            for package in self.packages:
                _output(["docker", "cp", str(package), f"{self.id}:/root/{package.name}"])
            self._configure_slurm()
            self.start_slurm()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _output(["docker", "rm", "-f", self.id])

    def try_run(self, script: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """A shell script as root; its output is stdout and stderr together."""
        return subprocess.run(
            ["docker", "exec", "-w", "/root", self.id, "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )

    def run(self, script: str, timeout_s: float = 300) -> str:
        """The same; AssertionError with the output where it fails."""
        done = self.try_run(script, timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """A file; its folder is there. Bytes that are no text as `os.fsdecode` has them."""
        words = ["docker", "exec", "-i", self.id, "sh", "-c", f"cat >{path}"]
        subprocess.run(words, input=os.fsencode(text), check=True)

    def files(self) -> set[str]:
        """Every path that a package, or somebody who installs one, could have left."""
        without = " -o ".join(f"-path {path}" for path in _NOT_COMPARED)
        found = self.run(rf"find / -xdev \( {without} \) -prune -o -print")
        return {line for line in found.splitlines() if line.startswith("/")}

    def _configure_slurm(self) -> None:
        described = Description({NAME: "dgx1v"}).files()
        usual = (PACKAGE / "docker" / "image" / "etc" / "slurm.conf").read_text()
        lines = [line for line in usual.splitlines() if not line.startswith("Accounting")]
        lines += [f"SlurmctldHost={NAME}", described["image/nodes.conf"]]
        self.write("/etc/slurm/gres.conf", described["image/gres.conf"])
        self.write("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
        self.run(
            "for gpu in 0 1 2 3 4 5 6 7; do mknod -m 666 /dev/fakegpu$gpu c 1 3; done;"
            " install -d -o slurm -g slurm /run/slurm /var/log/slurm /var/spool/slurmctld;"
            " install -d -o munge -g munge /run/munge; install -d /var/spool/slurmd"
        )
        # Last, and whole: a host that boots meanwhile starts slurmd as soon as this is there, and
        # one that finds no GPUs has its node drained for good.
        self.write("/etc/slurm/made.conf", "\n".join(lines))
        self.run("mv /etc/slurm/made.conf /etc/slurm/slurm.conf")

    def start_slurm(self) -> None:
        """munge, slurmctld and slurmd."""
        self.run("runuser -u munge -- munged")
        self.restart_slurmctld()
        self.run("slurmd")
        self.wait_for("sinfo -h -o %t | grep -qx idle")

    def wait_for(self, script: str, timeout_s: float = 60) -> None:
        """Until the script succeeds."""
        end = time.monotonic() + timeout_s
        while (done := self.try_run(script)).returncode:
            if time.monotonic() > end:
                seen = self.try_run(_STATE).stdout
                raise AssertionError(f"{script}: not within {timeout_s:g} s\n{done.stdout}\n{seen}")
            time.sleep(0.2)

    def restart_slurmctld(self) -> None:
        """`systemctl restart slurmctld`."""
        self.run(
            "pid=$(cat /run/slurm/slurmctld.pid 2>/dev/null) && kill $pid;"
            " while kill -0 ${pid:-x} 2>/dev/null; do sleep 0.1; done; slurmctld"
        )
        self.wait_for("scontrol ping | grep -q UP")

    def stop_slurm(self) -> None:
        """Neither slurmctld nor slurmd runs any more."""
        for daemon in ("slurmctld", "slurmd"):
            self.run(f"pkill -x {daemon}; while pgrep -x {daemon}; do sleep 0.1; done")

    def reboot_slurm(self, conf: str = "") -> None:
        """slurmctld and slurmd, one after the other, as at a boot; `conf` is their `-f`."""
        self.stop_slurm()
        option, where = (f" -f {conf}", f"SLURM_CONF={conf} ") if conf else ("", "")
        self.run(f"slurmctld{option} && slurmd{option}")
        self.wait_for(f"{where}sinfo -h -o %t | grep -qx idle")

    def start_engine(self) -> None:
        """`systemctl start gputopo`, with the folders that the unit makes."""
        for folder in ("/run/gputopo", "/var/lib/gputopo", "/var/log/gputopo"):
            self.run(f"install -d -o slurm -g slurm {folder}")
        self.run(
            "setsid runuser -u slurm -- gputopo serve --config /etc/slurm/gputopo.yaml"
            " >/tmp/engine.log 2>&1 </dev/null &"
        )
        self.wait_for("gputopo status || { cat /tmp/engine.log; false; }")

    def stop_engine(self) -> None:
        """`systemctl stop gputopo`, which takes /run/gputopo away, too."""
        self.run("pkill -f '^/usr/bin/python3 -I /usr/bin/gputopo serve'; true")
        self.wait_for("! pgrep -f '[/]usr/bin/gputopo serve'")
        self.run("rm -rf /run/gputopo")


class NotBootedError(Exception):
    """systemd does not run in a container here; the text says why."""


class BootedHost(Host):
    """A host on which systemd runs, tried where the container engine has cgroups of version 1."""

    options = (
        *("--cap-add", "SYS_ADMIN", "--env", "container=docker", "--stop-signal", "SIGRTMIN+3"),
        *("--tmpfs", "/run", "--tmpfs", "/run/lock", "-v", "/sys/fs/cgroup:/sys/fs/cgroup:ro"),
    )
    # Newer releases of systemd want to be told that cgroups of version 1 are meant.
    command = (
        *("/sbin/init", "systemd.unified_cgroup_hierarchy=0"),
        "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
    )

    def start_slurm(self) -> None:
        """By systemd, once it is there; packages may start and stop services, as on a real host."""
        try:
            self.wait_for("systemctl is-active munge", 30)
        except AssertionError as error:
            log = _output(["docker", "logs", "--tail", "1", self.id]).strip()
            raise NotBootedError(f"systemd does not boot in a container here: {log}") from error
        self.run("rm -f /usr/sbin/policy-rc.d; systemctl restart slurmctld slurmd")
        self.wait_for("sinfo -h -o %t | grep -qx idle")

    def restart_slurmctld(self) -> None:
        """What it says."""
        self.run("systemctl restart slurmctld")
        self.wait_for("scontrol ping | grep -q UP")

    def start_engine(self) -> None:
        """It is there when the command returns: the unit has Type=notify."""
        self.run("systemctl enable --now gputopo")
        self.run("gputopo status")

    def stop_engine(self) -> None:
        """As docs/packages.md has it."""
        self.run("systemctl disable --now gputopo gputopo-donors")

    def engine(self, key: str) -> str:
        """What systemd knows of the engine: MainPID, NRestarts, ..."""
        return self.run(f"systemctl show -P {key} gputopo").strip()


def gpus_of_a_job(host: Host) -> str:
    """Slurm's numbers of the GPUs that a job of two gets on the idle node."""
    host.wait_for("sinfo -h -o %t | grep -qx idle")
    return host.run("srun -Q --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES").strip()


def is_advised(host: Host) -> bool:
    """Does a job of two GPUs get those with the best link?

    On a busy machine the engine may miss its deadline: then a job gets Slurm's own, and so do those
    of the next five seconds.
    """
    ends = time.monotonic() + ADVISED_S
    while gpus_of_a_job(host) != "0,3":
        if time.monotonic() > ends:
            return False
        time.sleep(1)
    return True


def _output(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
