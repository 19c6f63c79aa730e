"""Every kind of job by our own policies; and that the soup finds what harms there may be."""

from dataclasses import replace

import pytest
from soup_harness import SEED, soup_of

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]


@pytest.mark.long("a minute and a half")
@pytest.mark.parametrize("policy", ["horizon", "mapa", "best-fit"])
def test_no_policy_of_ours_harms(cluster, policy):
    """Of the default's waits each job is told; else it starts as soon as without us."""
    soup = soup_of(cluster, SEED + 20, f"--comment=gpu-topo: policy={policy}", waits_end=False)
    soup.cook(40)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["running"] > 10, soup.seen


@pytest.mark.long("what the soup would see of a harm")
@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--begin=now+1hour", "does not start: PENDING (BeginTime)"),
        ("--exclusive=user", "nodes closed, with Slurm"),
        ("--cpus-per-gpu=3", "there Slurm gives"),
        ("--hold", "held"),
    ],
)
def test_a_planted_harm_is_found(cluster, engine, option, word):
    """The second try of each job has one more option, as if our advice had done that."""
    engine.rule(do="pass")
    soup = soup_of(cluster, SEED, option)
    soup.site = replace(soup.site, commands=())
    soup.cook(12, word)
    assert any(word in text for text in soup.found), soup.found
