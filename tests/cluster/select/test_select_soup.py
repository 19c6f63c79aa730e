"""Every kind of job under many configurations: advice costs neither the job nor anybody else."""

import re
from dataclasses import replace

import pytest
from soup_books import Books, harms
from soup_harness import JOBS, SEED, SITES, soup_of
from soup_requests import LIVES

from slurm_cluster.slurm_text import Job

long = pytest.mark.long("a minute and a half for each configuration")
#: Whatever an engine may answer: any free GPUs of any nodes, and now and then a wait of seconds.
ANY = {"hints": {"off": {"do": "pass"}}, "else": {"do": "any", "waits": 0.2}}


@pytest.mark.parametrize(
    "nth", [0, 1, *(pytest.param(nth, marks=long) for nth in range(2, 5))], ids="site {}".format
)
@pytest.mark.cluster
@pytest.mark.select_plugin
def test_any_legal_advice_is_harmless(cluster, engine, nth):
    engine.rule(**ANY)
    soup = soup_of(cluster, SEED + nth)
    soup.cook(40, elsewhere=6)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["elsewhere"] >= 6, soup.seen


@pytest.mark.long("a minute and a half for each configuration")
@pytest.mark.parametrize("nth", range(2), ids="site {}".format)
@pytest.mark.cluster
@pytest.mark.select_plugin
def test_where_sockets_are_taken_whole_a_job_gets_no_more_of_them(cluster, engine, nth):
    engine.rule(**ANY)
    soup = soup_of(cluster, SEED + 60 + nth)
    conf = re.sub(r"CR_(Core|CPU)\b", "CR_Socket", soup.site.slurm_conf)
    soup.site = replace(soup.site, slurm_conf=conf.replace(",CR_ONE_TASK_PER_CORE", ""))
    soup.cook(40, elsewhere=6)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["elsewhere"] >= 6, soup.seen


@pytest.mark.long("five minutes for each configuration")
@pytest.mark.timeout(60 + 20 * JOBS)
@pytest.mark.parametrize("nth", range(SITES), ids="site {}".format)
@pytest.mark.cluster
@pytest.mark.select_plugin
def test_whatever_becomes_of_a_job_advice_is_harmless(cluster, engine, nth):
    """Arrays, heterogeneous jobs, those that are held, changed, suspended, requeued, drained."""
    engine.rule(**ANY)
    soup = soup_of(cluster, SEED + 100 + nth, lives=LIVES)
    least = JOBS // 20 + 1
    soup.cook(JOBS, elsewhere=least)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["elsewhere"] >= least, soup.seen


def one_job(**changes) -> Job:
    whole = {
        "id": 1,
        "state": "RUNNING",
        "reason": "None",
        "gpus": {"n1": (0, 1)},
        "fields": {"NodeList": "n1", "Priority": "5"},
        "cores": {"n1": (0, 1)},
    }
    return Job(**(whole | changes))


NEIGHBOUR = one_job(id=7, gpus={"n1": (2,)}, cores={"n1": (4,)})
SUSPENDED = replace(NEIGHBOUR, state="SUSPENDED")


@pytest.mark.parametrize(
    ("job", "neighbour", "closed", "word"),
    [
        ({}, NEIGHBOUR, 0, ""),
        ({"gpus": {"n2": (0, 1)}, "cores": {"n2": (0, 1)}}, NEIGHBOUR, 0, ""),
        ({}, SUSPENDED, 0, "others"),
        ({}, None, 0, "others"),
        ({}, replace(NEIGHBOUR, gpus={"n1": (3,)}), 0, "others"),
        ({"gpus": {"n1": (1, 2)}}, NEIGHBOUR, 0, "held twice: n1: GPU 2"),
        ({"cores": {"n1": (3, 4)}}, NEIGHBOUR, 0, "cores of others"),
        ({}, NEIGHBOUR, 1, "1 nodes closed, with Slurm 0: ['n1']"),
        ({"state": "PENDING", "reason": "Resources"}, NEIGHBOUR, 0, "does not start"),
        ({"state": "FAILED"}, NEIGHBOUR, 0, "does not start: FAILED"),
        ({"fields": {"NodeList": "n1", "Priority": "0"}}, NEIGHBOUR, 0, "held"),
    ],
)
def test_harms(job, neighbour, closed, word):
    alone = Books({7: NEIGHBOUR, 1: one_job()})
    advised = {2: one_job(**{"id": 2, **job})} | ({7: neighbour} if neighbour else {})
    found = harms(alone, 1, Books(advised, frozenset(["n1"] if closed else [])), 2)
    assert [text for text in found if not text.startswith(word)] == []
    assert bool(found) == bool(word)


@pytest.mark.parametrize(("closes", "found"), [("n3", []), ("n2", ["1 nodes closed"])])
def test_nodes_that_a_job_closed_which_started_meanwhile_are_its_own(closes, found):
    waits = one_job(id=8, state="PENDING", reason="Resources", gpus={}, cores={}, fields={})
    started = one_job(id=8, gpus={"n3": (0,)}, cores={"n3": (0,)}, fields={"NodeList": "n3"})
    alone = Books({8: waits, 1: one_job()})
    advised = Books({8: started, 2: one_job(id=2)}, frozenset({closes}))
    assert [text[:14] for text in harms(alone, 1, advised, 2)] == found
