"""The reply to the submit of a shaped job: its nodes, GPUs per node and tasks, in Slurm's fields.

One task per GPU, unless the user gave -n (as many GPUs as tasks) or --ntasks-per-node (kept).
`ntasks_per_node` itself is only ever the user's: Slurm could not change it of a waiting job,
and the job may get another shape while it waits. The CPUs per node spread the tasks instead.
"""

from __future__ import annotations

from dataclasses import replace

from policies.contract.scheduling import Planned
from policies.performance import Shape
from slurm_plugin.act.enforcement import Enforcement
from slurm_plugin.act.lending import forms
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.shape import ShapeNote
from slurm_plugin.base.protocol import Ok, Submit, SubmitReply
from slurm_plugin.decide.preferences import Preferences
from slurm_plugin.slurm.interface import JobUpdate


def tasks_per_node(said: ShapeNote, shape: Shape) -> int:
    """Tasks on each node of a shape."""
    return said.tasks_per_node or shape.gpus_per_node


def cpus_per_node(said: ShapeNote, shape: Shape) -> int:
    """CPUs its tasks take on each node."""
    return tasks_per_node(said, shape) * max(1, said.cpus_per_task)


def gres(shape: Shape, separator: str) -> str:
    """The GPUs of each node as this release writes them."""
    return f"gres{separator}gpu:{shape.gpus_per_node}"


def shape_update(said: ShapeNote, shape: Shape, separator: str) -> JobUpdate:
    """The update that gives a job this shape.

    It always sets CPUs: Slurm refuses an update that sets them for a job that has started. An
    update without them would take nodes away from that job.
    """
    cpus = cpus_per_node(said, shape)
    return JobUpdate(
        tres_per_node=gres(shape, separator),
        num_nodes=(shape.nodes, shape.nodes),
        num_tasks=tasks_per_node(said, shape) * shape.nodes,
        min_cpus=cpus * shape.nodes,
        min_cpus_per_node=cpus,
    )


def shaped(
    asked: Submit,
    preferences: Preferences,
    said: ShapeNote,
    chosen: Planned,
    notice: str,
    inner: Enforcement,
    separator: str,
) -> SubmitReply:
    """What the bridge sets; `inner` adds what its way of enforcing needs."""
    is_fixed, shape = said.is_fixed, chosen.shape
    known = asked if is_fixed else with_shape(asked, said, separator)
    if not chosen.nodes and known.slots is not None:
        # Others are to start first, though it might fit.
        known = replace(known, slots=replace(known.slots, depends=True))
    answered = inner.on_submit(known, forms.SHAPED)
    values = {} if is_fixed else shape_update(said, shape, separator).at_submit()
    note = f"shape {shape}"
    comment = f"{hints.entry(preferences.text, note)} {said.text()}"
    if isinstance(answered, Ok):
        own = {key: text for key, text in answered.values.items() if key not in ("keep_s", "token")}
        theirs = own.pop("set.admin_comment", "")
        if not hints.note_in(theirs):
            theirs = hints.with_entry_of(theirs, comment)
        comment = said.written_into(theirs)
        values |= own
    elif is_fixed:
        # Slurm's own choice of GPUs, or a refusal: its shape is the user's in any case.
        return answered
    if notice:
        theirs = values.get("message", "gpu-topo: ").removeprefix("gpu-topo: ")
        values["message"] = "gpu-topo: " + "; ".join(filter(None, (notice, theirs)))
    return Ok({**values, "set.admin_comment": comment})


def with_shape(asked: Submit, said: ShapeNote, separator: str) -> Submit:
    """The submit as if the user had asked for this shape."""
    shape, keys = said.shape, asked.slots
    assert shape is not None
    assert keys is not None
    cpus = cpus_per_node(said, shape) * shape.nodes
    return replace(
        asked,
        shape=0,
        gpus=shape.gpus,
        per_node=shape.gpus_per_node,
        nodes=shape.nodes,
        max_nodes=shape.nodes,
        tasks=tasks_per_node(said, shape) * shape.nodes,
        slots=replace(keys, form="node", tpn=gres(shape, separator), cpus=max(keys.cpus, cpus)),
    )
