"""Names become placeholders wherever they stand, and what is no name stays readable."""

import json
import time

import pytest

from slurm_plugin.doctor.placeholders import Placeholders
from slurm_plugin.doctor.secrets import Secrets


@pytest.fixture
def names() -> Placeholders:
    some = Placeholders()
    some.know_nodes(["ctl", "dgx1", "dgx2", "login"])
    some.know("user", ["alice", "anna-lena", "root", "job", "dgx1", "user1"])
    some.know("account", ["acme"])
    some.know("job", ["train", "node", "42", "llama-acme-7b", "my, secret job"])
    return some


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("UserId=alice(1001) Account=acme,root", "UserId=user2 Account=account1,root"),
        ("alice, alice_x, /home/alice/a.sh, xalice", "user2, user2_x, /home/user2/a.sh, xalice"),
        ("run by anna-lena.sh", "run by user2.sh"),
        ("root and slurm stay", "root and slurm stay"),
        ("user1 is somebody, not alice", "user2 is somebody, not user3"),
        ("user job may not; the job waits", "user user2 may not; the job waits"),
        ("dgx1 is a node before it is a user", "dgx1 is a node before it is a user"),
        ("JobName=train Nodes=dgx[1-2]", "JobName=job1 Nodes=dgx[1-2]"),
        ("train on node 42: llama-acme-7b.out", "train on node 42: job1.out"),
        ("named my, secret job", "named job1"),
        ("Comment=call Bob at 5 Partition=gpu", "Comment=text1 Partition=gpu"),
        ("write to bob@example.org, not gputopo@b.service",
         "write to email1, not gputopo@b.service"),
        ("ctl.hpc.example.org db.example.ch decisions.jsonl slurm.conf",
         "ctl.domain1 host1 decisions.jsonl slurm.conf"),
        ("10.1.2.3 127.0.0.1:80 fe80::1 04:18:22 24.11.5", "address1 127.0.0.1:80 address2"
         " 04:18:22 24.11.5"),
        ("DbdHost=db1 SlurmctldHost[0]=ctl NodeAddr=10.0.0.[1-4]",
         "DbdHost=host1 SlurmctldHost[0]=ctl NodeAddr=host2"),
        ("gpu-topo: pattern=ring,profile=acme-x", "gpu-topo: pattern=ring,profile=text1"),
        ("hint: pattern=tree,batch=64", "hint: pattern=tree,batch=64"),
        ("uid 64999 and uid=0", "uid user2 and uid=0"),
        ("user: permission denied", "user: permission denied"),
        ("a\x1b[2J\x00b\u202ec", r"a\x1b[2J\x00b\u202ec"),
        ("acme-7", "account1-7"),
    ],
)  # fmt: skip
def test_a_name_is_replaced_and_nothing_else(names, text, shown):
    assert names.text(text, is_log=True) == shown


def test_what_is_replaced_stays_so_when_it_is_read_again(names):
    once = names.text("UserId=alice(1001) bob@example.org db.example.ch JobName=train", is_log=True)
    assert names.text(once, is_log=True) == once


def test_names_that_a_text_tells_are_known_in_others():
    names = Placeholders()
    names.learn("job 65 of carol is on its way; UserId=dave(1002) Account=physics /home/erin/x")
    shown = names.text("carol dave erin physics")
    assert shown == "user1 user2 user3 account1"


def test_names_of_jobs_leave_settings_alone(names):
    assert names.text("bf_interval=5 llama-acme-7b") == "bf_interval=5 llama-account1-7b"


def test_json_keeps_its_keys_and_its_numbers(names):
    record = {"decision": "use", "job": 7, "uid": 64999, "account": "acme", "why": "job of alice",
              "hint": "profile=acme-x", "note": "no profile 'acme-x'", "gpus": {"dgx1": [0, 3]},
              "users": {"job": 3}, "passes": {"alice waits": 2, "bob@x.org waits": 1}}  # fmt: skip
    shown = names.tree(record)
    assert json.loads(json.dumps(shown)) == {
        "decision": "use", "job": 7, "uid": "user2", "account": "account1", "why": "job of user3",
        "hint": "profile=text1", "note": "no profile 'text1'", "gpus": {"dgx1": [0, 3]},
        "users": {"user4": 3}, "passes": {"user3 waits": 2, "email1 waits": 1},
    }  # fmt: skip
    assert list(shown) == list(record)


def test_hidden_nodes_still_make_lists():
    names = Placeholders(hides_nodes=True)
    names.know_nodes(["dgx1", "dgx2", "r1n3", "login"])
    shown = names.text("dgx[1-2],dgx1 r[1-4]n3 login gpu:2 dgx1v")
    assert shown == "node1-[1-2],node1-1 node2-[1-4]-3 node3 gpu:2 dgx1v"
    assert names.tree({"gpus": {"dgx2": [1]}}) == {"gpus": {"node1-2": [1]}}


def test_ten_thousand_names_and_long_lines_take_no_long_time():
    names = Placeholders()
    names.know("user", (f"u{n}x" for n in range(50_000)))
    names.know("job", (f"job no. {n}!" for n in range(10_000)))
    lines = ["a." * 1000, "@" * 2000, "=" * 2000, "a-" * 1000, "user " * 400, "0:" * 1000,
             "comment=" + " " * 1900, "x@" + "a." * 900, "[1," * 600, "u7x " * 500]  # fmt: skip
    began = time.monotonic()
    secrets = Secrets()
    text = names.text(secrets.settings("\n".join(lines * 5)), is_log=True)
    assert time.monotonic() - began < 30
    assert "u7x" not in text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("AccountingStoragePass=hunter2", "AccountingStoragePass=(taken out)"),
        ("StorePass = a b, c", "StorePass = (taken out)"),
        ("AuthInfo=cred_expire=120,socket=/x", "AuthInfo=(taken out)"),
        ("AuthInfo                = (null)", "AuthInfo                = (null)"),
        ("AuthType=auth/munge", "AuthType=auth/munge"),
        ("JobCompPass=x", "JobCompPass=(taken out)"),
        ("AuthAltParameters=jwt_key=/etc/k", "AuthAltParameters=(taken out)"),
        ("SlurmctldParameters=enable_configless,my_token=abc,power_save_interval=10",
         "SlurmctldParameters=enable_configless,my_token=(taken out),power_save_interval=10"),
        ("SlurmctldParameters=x=Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5", "SlurmctldParameters=x=(taken out)"),
        ("pass_budget_ms=100", "pass_budget_ms=100"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer (taken out)"),
        ("url https://u:pw@db/x", "url https://(taken out)@db/x"),
        ("t eyJhbGciOi.eyJzdWIiOiJ4In0.abc t", "t (taken out) t"),
        ('"password": "a b"', '"password": (taken out)'),
        ("SelectTypeParameters=CR_Core_Memory", "SelectTypeParameters=CR_Core_Memory"),
    ],
)  # fmt: skip
def test_a_secret_is_taken_out(line, shown):
    secrets = Secrets()
    assert secrets.settings(f"A=1\n{line}\nB=2") == f"A=1\n{shown}\nB=2"
    assert secrets.count == (line != shown)
