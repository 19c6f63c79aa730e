"""What `gputopo why` says in each scripted state (tests/cluster/users/waiting_states.py).

TIME stands for any time, {job} and {first} for the numbers of jobs.
"""

import re

SENTENCES = {
    "fragmentation": (
        "waits for 4 free GPUs on one node: 6 are free, but never 4 on one node (dgx1 3, dgx2 3)."
    ),
    "fragmentation behind a gate": (
        "waits for 4 free GPUs on one node: 6 are free, but never 4 on one node (dgx1 3, dgx2 3)."
    ),
    "too few free GPUs": "waits for 4 free GPUs: only 1 of 16 is free (dgx2 1).",
    "two nodes and one has enough": (
        "waits for 2 nodes with 4 free GPUs each: only dgx1 has so many (dgx1 5, dgx2 3)."
    ),
    "priority": (
        "waits for 4 free GPUs on one node: 6 are free, but never 4 on one node (dgx1 3, dgx2"
        " 3); job {first} of bob comes first."
    ),
    "backfill would delay the first": (
        "would fit on dgx2 now, but that would delay job {first} of bob, which comes first."
    ),
    "dependency": "waits until job {first} has ended well.",
    "dependency that never comes": "can never start: job {first} did not end well.",
    "begin time": "is not to start before TIME (--begin, or a requeue).",
    "its own reservation is later": "waits for its reservation class, which begins at TIME.",
    "maintenance": "waits for a node that can take jobs: dgx1 is under maintenance (repair).",
    "maintenance before its end": (
        "waits for a node that can take jobs: dgx1 is under maintenance before the job would"
        " end (repair)."
    ),
    "features": "waits for 2 free GPUs on dgx1: none of its 8 is free.",
    "features that no node has any more": (
        "can never start as it is: no node has the features 'big'."
    ),
    "CPUs beside free GPUs": (
        "waits although dgx1 has 8 free GPUs: only 2 of the 4 CPUs that it needs are free there."
    ),
    "memory beside free GPUs": (
        "waits although dgx1 has 8 free GPUs: only 500 of the 1000 MB that it needs are free there."
    ),
    "a whole node": "waits for a node of its own: dgx1 has free GPUs, but 1 other job runs there.",
    "a drained node": "waits for a node that can take jobs: dgx1 is drained.",
    "held by its user": "is held by its user, until it is released.",
    "held by an administrator": "is held by an administrator, and only one can release it.",
    "a start that failed": ("is held by Slurm: its node could not start it, until it is released."),
    "licences": "waits for a licence: none of 1 matlab is free, and it needs 1.",
    "tasks of an array": (
        "waits for other tasks: only 1 of its array's tasks may run at a time (%1)."
    ),
    "a partition that is down": "waits for partition dgx, which is DOWN.",
    "an inactive partition": "waits for partition dgx, which is INACTIVE.",
    "a partition for another account": (
        "cannot start: partition dgx is for account strangers alone, and the job is of account"
        " research."
    ),
    "a partition closed to its QOS": "cannot start: partition dgx is closed to QOS normal.",
    "a partition for another group": (
        "cannot start: partition dgx is for group root alone, and user alice is not in it."
    ),
    "the partitions time limit": (
        "can never start: it asks for -t 1:00:00, and partition short allows -t 5 at most."
    ),
    "the partitions node limit": (
        "can never start: it asks for 2 nodes, and partition single allows 1 node at most."
    ),
    "GPUs of an account": (
        "waits because account research may use 2 GPUs at a time, and 2 GPUs are in use."
    ),
    "GPUs of an account above": (
        "waits because account faculty, which is above account research, may use 2 GPUs at a time,"
        " and 2 GPUs are in use."
    ),
    "GPUs of a user in a QOS": (
        "waits because user alice in QOS normal may use 2 GPUs at a time, and 2 GPUs are in use."
    ),
    "jobs of a user": (
        "waits because user alice in account research may run 1 job at a time, and 1 job runs."
    ),
    "a limit behind an opened gate": (
        "waits because user alice in account research may run 1 job at a time, and 1 job runs."
    ),
    "min utility": (
        "could start, but its policy waits for better GPUs: mapa: the best free GPUs have"
        " 0.26 of the bandwidth of the best GPUs of an empty node, and the job asks for 0.90."
    ),
}


def said(text: str, job: str) -> str:
    """The first line without the job's name, and without times."""
    first = text.partition("\n")[0]
    sentence = re.sub(rf"^Job {job}(_\S+)? ", "", first)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+[+-][\d:]+", "TIME", sentence)
