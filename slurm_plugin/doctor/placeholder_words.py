"""The words of our texts and Slurm's, which stay though somebody may be called so."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

from gres_topology import catalog
from policies.registry import registry
from slurm_plugin.base.job_states import ENDED, QUEUE_STATES, REQUEUED
from slurm_plugin.base.log_lines import AnyLine, LoggedSet
from slurm_plugin.config.key import keys_of
from slurm_plugin.config.settings import load_policies

#: Users of the system, who are nobody.
SYSTEM_USERS = frozenset(("root", "slurm", "munge", "nobody", "gputopo", "daemon", "systemd"))
#: Ends of file names that look like a domain's.
_FILES = """
py so sh md gz js rs cc db conf yaml yml lua log json jsonl txt service socket timer mount slice
target scope pid lock disable
"""
NO_DOMAINS = frozenset(_FILES.split())
_DOMAINS = """
com org net edu gov mil int info biz cloud local lan internal intranet corp home localdomain
cluster hpc science systems tech ai
"""
GENERIC_DOMAINS = frozenset(_DOMAINS.split())
_PLAIN = """
a about above account accounts after again age all allocated allocation allow alone alt an and
answer answered answers any are array as asked at backfill bandwidth batch be because been
before begin beside best better between bind bridge but by bytes cached can cannot cause chosen
client cluster comment communication conf config configuration connection controller controllers
cores could count cpu cpus created data day debug decided decision decisions declared default
defrag demand detail did directory disk do doctor does done donor donors down dropped each edu
end ended enforce enforcement engine error errors etc even every exit failed feature features
file files fill first fix for found free from full given go goes gone got gpu gpus gres group
groups had has have held here hint hints hold home horizon host hour how idle if ignored in
index info into is it its job jobs just keep kept kill killed kind known lack last late later
least left lends lent less level lib licenses limit limits line lines link links list load
loaded loan local lock log logged long lost lua made main marked marks may memory message
messages mib mode model more most moved ms must name named names need needs neighbours network
never new next no node nodes none not note nothing now null number observe of off ok old on one
only open or order other others our out over own page parent part partition partitions parts
pass passed passes path pattern patterns pending per pid place placed plan platform plugin
plugins policies policy port ports post priority problem profile profiles program python quality
queue quiet rank ranks rate read reading reads ready reason recent record refused release
released reload remote removed replies reply report request requeue reservation resumed ring
root rule rules run running runs said same say says score second seconds see select sent server
service set sets setting share shares shell site size slot slots slow slurm slurmctld slurmd so
socket some start started starts state status still stock stop stopped stored submit submits
such switch system table tables take taken takes task tasks test text than that the their them
then there these they this those thread time timeout times to told too took topology track tree
try type unit unknown until up update updates uptime use used user users value values var
version wait waited waiting waits want wants warn warning was we were what when where which
while who whole why will with without work works would write written wrong yaml years yes you
your zero
"""


@cache
def words() -> frozenset[str]:
    """Keys of gputopo.yaml and of the logs, policies, machines, states, and plain English."""
    found = {*_PLAIN.split(), *_keys(load_policies())}
    for kind in (*get_args(AnyLine), LoggedSet):
        found |= {*kind.__struct_fields__, kind.__struct_config__.tag or ""}
    for policy in registry.names():
        for hint in registry.get(policy).hints:
            found |= {hint.name, *re.findall(r"[a-z][a-z-]*", hint.allowed)}
    found |= {part for word in found for part in re.split(r"[_-]", word)}
    found |= {*registry.names(), *catalog.names(), *ENDED, *QUEUE_STATES, *REQUEUED}
    return frozenset(found - {""})


def _keys(section: type) -> set[str]:
    """The keys of a settings class and of its sections, and their choices."""
    found: set[str] = set()
    for key in keys_of(section):
        found |= {key.name, *key.choices}
        if key.section is not None:
            found |= _keys(key.section)
    return found
