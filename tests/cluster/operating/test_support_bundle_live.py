"""`gputopo support-bundle` where Slurm, its accounting and an engine run, with jobs of users."""

import json
import re

import pytest
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes("short"), pytest.mark.enforced]

FILE = "/tmp/bundle.tar.gz"
#: What a user writes, and nobody else is to read.
SECRETS = ("unpublished-protein", "paper-with-carol", "carol@example.org")


def bundle(cluster: Cluster, user: str) -> tuple[str, dict[str, str]]:
    """What was printed, and the bundle's texts by file name."""
    cluster.run("ctl", f"rm -f {FILE}")
    said = cluster.run("ctl", f"gputopo support-bundle --output {FILE}", user=user).out
    assert cluster.run("ctl", f"stat -c '%U %a' {FILE}").out.split() == [user, "600"]
    names = cluster.run("ctl", f"tar -tzf {FILE}").out.split()
    texts = {name: cluster.run("ctl", f"tar -xzOf {FILE} {name}").out for name in names}
    return said, {name.rpartition("/")[2]: text for name, text in texts.items()}


def test_it_has_what_a_report_needs_and_nothing_that_a_user_wrote(cluster: Cluster):
    named = (f"--job-name={SECRETS[0]}", f"--comment={SECRETS[1]}", f"--mail-user={SECRETS[2]}")
    job = cluster.started("-p", "dgx", "--gres=gpu:2", *named, sleep_s=600)
    log = "/var/log/gputopo/decisions.jsonl"
    until(lambda: f'"job":{job.id},' in cluster.run("ctl", f"cat {log}").out, "it is in the log")
    said, texts = bundle(cluster, "root")
    whole = "\n".join(texts.values())
    for word in ("alice", *SECRETS):
        assert word not in whole, word
    assert re.search(r"alice\b", said)
    status = json.loads(texts["status.json"])
    assert status["enforcement"] == enforcement()
    assert not [
        one for one in json.loads(texts["doctor.json"])["findings"] if "Traceback" in str(one)
    ]
    assert str(job.id) in whole
    # Slurm's own files and words are in it.
    assert cluster.run("ctl", "scontrol --version").out.split()[1] in whole
    assert "JobSubmitPlugins" in whole


def test_a_users_own_has_what_that_user_may_see(cluster: Cluster):
    said, texts = bundle(cluster, "alice")
    assert "root" in said, said
    assert "status.json" not in texts or "socket" not in texts["status.json"]
