"""What each word of Slurm's for a job's state or reason means, and which release has it.

`slurm/words_of_releases.txt` has a word a line, with the first and the last release that has it, as
their sources tell it: reasons are the strings of src/common/job_state_reason.c (until 23.11
job_reason_string of slurm_protocol_defs.c), flags and states those that job_state_string of
slurm_protocol_defs.c returns before and after its `switch`, and further flags are the second name
of each entry of JOB_STATE in the newest src/plugins/data_parser/*/parsers.c. A script of twenty
lines makes it again, and asserts that no word was gone and came back.
"""

from pathlib import Path

RELEASES = ("22.05", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
TABLE = Path(__file__).parent / "slurm" / "words_of_releases.txt"

#: How a base state is to be read: '' for a job that is over.
STATES = {
    **{word: word for word in ("PENDING", "RUNNING", "SUSPENDED")},
    **dict.fromkeys(("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"), ""),
    **dict.fromkeys(("PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"), ""),
}
#: How a flag is to be read that stands alone, as squeue's table has it.
ALONE = {
    "COMPLETING": "COMPLETING",
    "CONFIGURING": "CONFIGURING",
    **dict.fromkeys(("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"), "PENDING"),
    **dict.fromkeys(("RESV_DEL_HOLD", "EXPEDITING"), "PENDING"),
    **dict.fromkeys(("RESIZING", "SIGNALING", "STOPPED"), "RUNNING"),
    **dict.fromkeys(("REVOKED", "STAGE_OUT"), ""),
}
#: Flags that stand beside a base state alone (JSON), and say nothing of what the job holds.
BESIDE = {"LAUNCH_FAILED", "RECONFIG_FAIL", "POWER_UP_NODE", "UPDATE_DB"}

#: Reasons of a job that lacks nothing but room, or at which Slurm has not looked.
ROOM = {"None", "Resources", "Priority", "Cleaning"}
#: Those that the state of the nodes explains to `gputopo why`; the first also stands for a gate.
NODES = {"BeginTime", "BadConstraints", "NodeDown", "ReqNodeNotAvail", "Reservation"}
#: Those of a job that has ended, or of a federation, and those that no release sets any more
#: (grep for their WAIT_ and FAIL_ names): `gputopo why` repeats Slurm's word.
UNTOLD = {
    *("NonZeroExitCode", "OutOfMemory", "RaisedSignal", "TimeLimit", "FedJobLock"),
    *("AccountingPolicy", "AssociationJobLimit", "AssociationResourceLimit"),
    *("AssociationTimeLimit", "QOSJobLimit", "QOSResourceLimit", "QOSTimeLimit"),
    *("QOSUsageThreshold", "BlockFreeAction", "BlockMaxError", "BurstBufferOperation"),
    *("PowerNotAvail", "PowerReserved"),
}


def words_of(kind: str, release: str = "") -> set[str]:
    """The reasons, states or flags of a release, or of any."""
    found = set()
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        sort, first, last, word = line.split()
        if sort == kind and (not release or first <= release <= last):
            found.add(word)
    return found
