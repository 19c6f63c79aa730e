"""The SPANK plugin's part without Slurm, under sanitizers, beside the rule in Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from c_program import built, claims_in, run
from launch_rule import Launch, Task, launch

from gres_topology import NumaNode, catalog
from gres_topology.cpulist import format_list
from policies.patterns.pattern import PATTERNS
from slurm_plugin.node.launch import LaunchMachine, machine_of, write

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "slurm_plugin" / "spank"
CLAIMS = claims_in(Path(__file__).parent)


def reversed_minors() -> LaunchMachine:
    """A DGX-1V whose Slurm counts from the last GPU by PCI address; minors as Slurm counts."""
    topology = catalog.load("dgx1v")
    pci = tuple(f"00000000:{0x10 + 3 * gpu:02X}:00.0" for gpu in range(8))
    minors = tuple(range(7, -1, -1))
    numa = tuple(NumaNode(n.number, n.cpus, 256_000) for n in topology.numa_nodes)
    known = replace(topology, name="reversed", pci=pci, minors=minors, numa_nodes=numa)
    return machine_of(known, tuple(range(7, -1, -1)))


MACHINES = {
    **{
        name: machine_of(catalog.load(name))
        for name in ("dgx1v", "minsky", "a100-pcie-bridged", "mi250x", "gb200-nvl72")
    },
    "shuffled mi250x": machine_of(catalog.load("mi250x"), (5, 2, 7, 0, 1, 6, 3, 4)),
    "reversed": reversed_minors(),
}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything without Slurm, built once."""
    return built(PLUGIN, tmp_path_factory.mktemp("spank"))


@pytest.fixture(scope="session")
def dgx1v(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of a DGX-1V."""
    path = tmp_path_factory.mktemp("tables") / "dgx1v.table"
    path.write_text(write(MACHINES["dgx1v"]))
    return path


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim(program: Path, claim: str) -> None:
    """Each holds under the sanitizers."""
    assert run(program, "run", claim) == f"ok {claim}\n"


@pytest.mark.parametrize("seed", range(1, 5))
def test_mutated_tables_break_nothing(program: Path, dgx1v: Path, seed: int) -> None:
    """Tables, hints, arguments and tasks with random damage; the seed makes it repeatable."""
    said = run(program, "fuzz", str(seed), "5000", dgx1v)
    assert said == f"ok fuzz seed={seed} rounds=5000\n"


def random_task(machine: LaunchMachine, rng: Random) -> Task:
    """A task as a step of this machine could have it."""
    gpus = tuple(sorted(rng.sample(range(machine.gpus), rng.randint(1, min(8, machine.gpus)))))
    share = rng.choice([n for n in range(1, len(gpus) + 1) if len(gpus) % n == 0])
    tasks, rank = len(gpus) // share, rng.randrange(len(gpus) // share)
    kind = rng.choice(("whole", "per task", "chosen"))
    own = gpus if kind == "whole" else gpus[rank * share :][:share]
    is_relative = kind == "whole" and rng.random() < 0.4
    if not is_relative and kind == "chosen":
        own = tuple(rng.sample(gpus, rng.randint(1, len(gpus))))
    first = rng.randrange(0, 60)
    return Task(
        gpus=gpus,
        own=own,
        tasks=tasks,
        local_rank=rank,
        gpus_per_task=share if kind == "per task" else 0,
        is_chosen=kind == "chosen",
        is_relative=is_relative,
        cpus=tuple(range(first, first + rng.choice((1, 20, 60)))),
        cpus_per_task=rng.choice((0, 0, 1, 16)),
        is_cpu_bound=rng.random() < 0.2,
        is_memory_bound=rng.random() < 0.2,
        memory_mb=rng.choice((0, 500, 100_000, 400_000)),
    )


def words(task: Task) -> str:
    """The task as Slurm's environment says it, for pure_test."""
    visible = task.own
    if task.is_relative:
        visible = tuple(range(len(task.own)))
    bind = "gres/gpu:map:0" if task.is_chosen else ""
    if task.gpus_per_task:
        bind = f"gres/gpu:per_task:{task.gpus_per_task}"
    flags = (" cpubind=1" if task.is_cpu_bound else "") + (
        " membind=1" if task.is_memory_bound else ""
    )
    # Relative numbers are recognised by device files that cannot be opened.
    if task.is_relative:
        flags += " open=" + ",".join(map(str, task.gpus))
    return (
        f"step={','.join(map(str, task.gpus))} visible={','.join(map(str, visible))} tres={bind}"
        f" tasks={task.tasks} local={task.local_rank} cpus={format_list(task.cpus)}"
        f" percpu={task.cpus_per_task} memory={task.memory_mb}{flags}"
    )


def said(found: Launch) -> str:
    """A launch in pure_test's words."""
    cpus = "-" if found.cpus is None else format_list(found.cpus)
    nodes = sum(1 << node for node in found.numa or ())
    return (
        f"visible={','.join(map(str, found.visible))} cpus={cpus} mem={found.memory}"
        f" nodes={nodes:x} nics={','.join(found.nics)}"
    )


#: Every pattern and every binding of memory once; the other pairs of them in the long run.
PAIRS = [
    pytest.param(pattern, memory, marks=() if at == where else pytest.mark.long("every pair"))
    for at, pattern in enumerate(("ring", "tree", "star"))
    for where, memory in enumerate(("preferred", "bind", "interleave"))
]


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(("pattern", "memory"), PAIRS)
def test_the_plugin_plans_what_the_rule_says(
    program: Path, tmp_path: Path, name: str, pattern: str, memory: str
) -> None:
    """A hundred tasks of every kind on each machine: the same environment and binding."""
    machine, rng = MACHINES[name], Random(f"{name} {pattern} {memory}")
    # pure_test's node has 1000 MB in NUMA nodes that the table does not know.
    numbers = {numa for numa in machine.numa if numa is not None} | machine.numa_cpus.keys()
    told = dict.fromkeys(numbers, 1000) | machine.numa_memory_mb
    numa_nodes = tuple(
        NumaNode(number, machine.numa_cpus.get(number, ()), told[number]) for number in numbers
    )
    rule = replace(machine, topology=replace(machine.topology, numa_nodes=numa_nodes))
    table = tmp_path / "table"
    table.write_text(write(machine))
    tasks = [random_task(machine, rng) for _ in range(100)]
    settings = (f"pattern={pattern}", f"mem={memory}")
    stdin = "".join(words(task) + "\n" for task in tasks)
    lines = run(program, "plan", table, *settings, stdin=stdin).splitlines()
    for task, line in zip(tasks, lines, strict=True):
        assert line == said(launch(rule, task, pattern, memory=memory)), words(task)


@pytest.mark.parametrize("name", ["dgx1v", "mi250x", "shuffled mi250x"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_set_has_the_rules_order(
    program: Path, tmp_path: Path, name: str, pattern: str
) -> None:
    """All 255 sets of an eight-GPU node, in each pattern."""
    machine = MACHINES[name]
    table = tmp_path / "table"
    table.write_text(write(machine))
    sets = [tuple(gpu for gpu in range(8) if mask >> gpu & 1) for mask in range(1, 256)]
    stdin = "".join(words(Task(gpus, gpus)) + "\n" for gpus in sets)
    lines = run(program, "plan", table, f"pattern={pattern}", stdin=stdin).splitlines()
    for gpus, line in zip(sets, lines, strict=True):
        expected = [machine.devices[gpu] for gpu in machine.order(pattern, gpus)]
        assert line.split()[0] == f"visible={','.join(map(str, expected))}"


#: What the driver of eight GPUs writes for them, by PCI address; Slurm may write other letters.
UUIDS = [f"GPU-8932f937-d72c-4106-c12f-20bd9faed9f{gpu}" for gpu in range(8)]


def by_uuid(gpus: str) -> str:
    """CUDA's numbers as UUIDs."""
    return ",".join(UUIDS[int(gpu)] for gpu in gpus.split(","))


BY_UUID = [
    ("ranks along the ring's NVLinks", "0,1,4,5", "tasks=1", "0,1,5,4"),
    ("a task's share of the ring", "3", "tasks=8 local=3 tres=gpu:per_task:1", "1"),
    ("a share that no other may open", "3", "tasks=8 local=3 tres=gpu:per_task:1 open=3", "3"),
    ("the whole step, others hidden", "0,1,4,5", "open=0,1,4,5", "0,1,5,4"),
    ("as it was chosen", "3,0", "tres=gpu:map:3,0", "3,0"),
]


@pytest.mark.parametrize(
    ("visible", "task", "ordered"), [row[1:] for row in BY_UUID], ids=[row[0] for row in BY_UUID]
)
def test_gpus_named_by_uuid_are_ordered_and_named_by_uuid(program, dgx1v, visible, task, ordered):
    """Slurm 26.05 with Flags=env_uuid in gres.conf; `numbering` says nothing about them."""
    step = visible if "tasks=8" not in task else "0,1,2,3,4,5,6,7"
    line = f"step={step} visible={by_uuid(visible).upper()} uuids={','.join(UUIDS)} {task}\n"
    for numbering in ("auto", "relative"):
        said = run(program, "plan", dgx1v, f"numbering={numbering}", stdin=line)
        assert said.split()[0] == f"visible={by_uuid(ordered)}"


def test_uuids_are_those_of_the_tables_gpus_by_pci_address(program: Path, tmp_path: Path) -> None:
    """Slurm's GPUs 0 and 1 of the reversed machine are the driver's last two."""
    table = tmp_path / "table"
    table.write_text(write(MACHINES["reversed"]))
    line = f"step=0,1 visible={by_uuid('7,6')} uuids={','.join(UUIDS)} tres=gpu:map:0,1\n"
    assert run(program, "plan", table, stdin=line).startswith(f"visible={by_uuid('7,6')} ")
    line = line.replace("step=0,1", "step=6,7")
    assert run(program, "plan", table, stdin=line).startswith("left: the visible devices ")


LEFT = [
    ("the driver names none", "GPU-1", "", "the driver names 0 of the 8 GPUs in the table (dgx1v)"),
    ("another machine's table", "GPU-1", "GPU-1,GPU-2", "the driver names 2 of the 8 GPUs"),
    ("another node's GPU", "GPU-1", ",".join(UUIDS), '"GPU-1" is none of this node\'s GPUs'),
    ("a MIG slice beside a GPU", f"{UUIDS[0]},MIG-5", ",".join(UUIDS), '"MIG-5" is none of'),
    ("one twice", f"{UUIDS[0]},{UUIDS[0]}", ",".join(UUIDS), "or named twice"),
    ("a comma too many", f"{UUIDS[0]},,{UUIDS[1]}", ",".join(UUIDS), '"" is none of'),
]


@pytest.mark.parametrize(
    ("visible", "uuids", "why"), [row[1:] for row in LEFT], ids=[row[0] for row in LEFT]
)
def test_uuids_that_mean_nothing_here_are_left_as_slurm_set_them(
    program, dgx1v, visible, uuids, why
):
    line = f"step=0,1 visible={visible} uuids={uuids}\n"
    said = run(program, "plan", dgx1v, stdin=line)
    assert said.startswith("left: the visible device")
    assert why in said


def information(folder: Path, address: str, uuid: str) -> None:
    """A file as NVIDIA's driver has it for a GPU."""
    (folder / address).mkdir(parents=True)
    text = f"Model: \t\t NVIDIA V100\nIRQ:   \t\t 58\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n"
    (folder / address / "information").write_text(text)


def test_the_driver_names_the_gpus_by_pci_address(program: Path, tmp_path: Path) -> None:
    """All of them or none: one that was not used yet has no UUID."""
    gpus = tmp_path / "gpus"
    assert run(program, "uuids", gpus) == ""
    for number, address in enumerate(("0000:8a:00.0", "0001:06:00.0", "0000:06:00.0")):
        information(gpus, address, UUIDS[number])
    assert run(program, "uuids", gpus).splitlines() == [UUIDS[2], UUIDS[0], UUIDS[1]]
    information(gpus, "0001:07:00.0", "GPU-????????-????-????-????-????????????")
    assert run(program, "uuids", gpus) == ""


NOT_TOLD = 'left: which GPUs the relative numbers "0" mean cannot be told; expected the device'
#: sentence, arguments, task on a DGX-1V, how its plan begins.
PLANS = [
    ("a GPU that the machine lacks", "", "step=0,9 visible=0,9", "left: the step has GPU 9 and the"
     " table (dgx1v) ends at 7; is it another machine's?\n"),
    ("a MIG slice", "", "step=0 visible=MIG-5c89", 'left: the visible devices are "MIG-5c89";'
     " expected indices or UUIDs of whole GPUs (a MIG slice stays as Slurm set it)\n"),
    ("devices that are not the step's", "", "step=0,1 visible=5,6", 'left: the visible devices'
     ' "5,6" fit neither the step\'s GPUs "0,1" nor a count of them\n'),
    ("relative numbers of a cgroup without minors", "", "step=2,5 visible=0", f"{NOT_TOLD} minors"
     " in the table (dgx1v)\n"),
    ("a task without GPUs", "", "step= visible=", "left: \n"),
    ("a task that sees none of its step's", "", "step=0 visible=", "left: \n"),
    ("a task of a step without GPUs", "", "step= visible=0", "left: \n"),
    ("node-wide numbers: nothing is hidden", "", "step=0,1 visible=0,1", "visible=0,1 "),
    ("relative numbers of the whole step", "", "step=3,6 visible=0,1", "visible=0,1 "),
    ("of one task, others hidden", "", "step=2,5 visible=0 open=5", "visible=0 "),
    ("of one task, all open", "", "step=2,5 visible=1 open=2,5", "visible=1 "),
    ("both fit, some are hidden: relative", "", "step=1,0 visible=1,0 open=0,1", "visible=0,1 "),
    ("numbers above the count are node-wide", "", "step=6,7 visible=7,6", "visible=6,7 "),
    ("ranks along the ring's NVLinks", "", "step=0,1,4,5 visible=0,1,4,5", "visible=0,1,5,4 "),
    ("a task's share of the ring", "", "step=0,1,2,3,4,5,6,7 visible=3 tasks=8 local=3"
     " tres=gpu:per_task:1", "visible=1 "),
    ("tasks on CPUs keep Slurm's share", "", "step=0,3 visible=3 tasks=2 tres=gpu:per_task:1"
     " cpubind=1", "visible=3 "),
    ("GPUs of one NUMA node", "", "step=4,5 visible=4,5 cpus=0-79",
     "visible=4,5 cpus=20-39,60-79 mem=preferred nodes=2 nics=mlx5_2\n"),
    ("GPUs of two NUMA nodes", "", "step=0,4 visible=0,4 cpus=0-79",
     "visible=0,4 cpus=- mem=none nodes=0 "),
    ("memory of both", "mem=interleave", "step=0,4 visible=0,4", "visible=0,4 cpus=- mem=interleave"
     " nodes=3 "),
    ("strict memory where the job fits", "mem=bind", "step=0 visible=0 memory=1000",
     "visible=0 cpus=- mem=bind nodes=1 "),
    ("not where it is larger", "mem=bind", "step=0 visible=0 memory=1001",
     "visible=0 cpus=- mem=preferred nodes=1 "),
    ("nor where its memory is not known", "mem=bind", "step=0 visible=0",
     "visible=0 cpus=- mem=preferred nodes=1 "),
    ("no CPU that the task lacks", "", "step=0 visible=0 cpus=5,25", "visible=0 cpus=5 "),
    ("none of the node's CPUs", "", "step=0 visible=0 cpus=25,26", "visible=0 cpus=- "),
    ("too few of them", "", "step=0 visible=0 cpus=5,25 percpu=2", "visible=0 cpus=- "),
    ("none against a binding", "", "step=0 visible=0 cpus=5,25 cpubind=1", "visible=0 cpus=- "),
    ("with bind=none", "bind=none", "step=0 visible=0 cpus=5,25", "visible=0 cpus=- mem=none "),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "task", "begins"), [row[1:] for row in PLANS], ids=[row[0] for row in PLANS]
)
def test_a_task_is_planned(
    program: Path, dgx1v: Path, arguments: str, task: str, begins: str
) -> None:
    """Worked out by hand; a task that is left alone has the sentence for the log."""
    found = run(program, "plan", dgx1v, *arguments.split(), stdin=task + "\n")
    assert found.startswith(begins)


BINDINGS = [
    ("not bound: the order of all that it sees", "none", "0,3"),
    ("bound by tasks: the second task's share", "per_task:2", "5,6"),
    ("bound by a list: as it was chosen", "map:3,0", "3,0"),
]


@pytest.mark.parametrize("begin", ["gres/gpu:", "gres/gpu:verbose,", "gpu:"])
@pytest.mark.parametrize(
    ("how", "visible"), [row[1:] for row in BINDINGS], ids=[row[0] for row in BINDINGS]
)
def test_slurms_binding_is_read(
    program: Path, dgx1v: Path, begin: str, how: str, visible: str
) -> None:
    """As each release says it, 22.05 in the shorter words."""
    line = f"step=0,3,5,6 visible=3,0 tasks=2 local=1 tres={begin}{how}\n"
    assert run(program, "plan", dgx1v, stdin=line).split()[0] == f"visible={visible}"


def test_relative_numbers_follow_pci_and_not_minors(program: Path, tmp_path: Path) -> None:
    """Slurm's GPUs 0 and 2 are the last and third last by PCI address: seen as 1 and 0."""
    table = tmp_path / "table"
    table.write_text(write(MACHINES["reversed"]))
    for task, visible in (
        ("step=0,2 visible=0 open=0,2 tres=gres/gpu:map:0", "1"),
        ("step=0 visible=0", "7"),
    ):
        found = run(program, "plan", table, stdin=task + "\n")
        assert found.startswith(f"visible={visible} ")


def test_a_table_cut_anywhere_is_refused(program: Path, dgx1v: Path, tmp_path: Path) -> None:
    """After any line, and within the last."""
    lines = dgx1v.read_text().splitlines(keepends=True)
    table = tmp_path / "table"
    cuts = ["".join(lines[:end]) for end in (0, 1, 5, 20, 300, len(lines) - 1)]
    for cut in [*cuts, dgx1v.read_text()[:-1]]:
        table.write_text(cut)
        assert run(program, "plan", table).startswith(f"refused: {str(table)[:120]}: is ")


def test_an_edited_table_is_refused(program: Path, dgx1v: Path, tmp_path: Path) -> None:
    """One digit of one row."""
    text = dgx1v.read_text()
    table = tmp_path / "table"
    table.write_text(text.replace("\n1b 0314\n", "\n1b 0341\n", 1))
    assert "is cut or damaged" in run(program, "plan", table)


def test_a_missing_table_or_a_folder_is_refused(program: Path, tmp_path: Path) -> None:
    """With what was found there."""
    said_missing = run(program, "plan", tmp_path / "none")
    assert "No such file or directory; expected a table" in said_missing
    assert "expected a table" in run(program, "plan", tmp_path)


def test_nics_that_the_kernel_does_not_know_give_no_hint(
    program: Path, dgx1v: Path, tmp_path: Path
) -> None:
    """A wrong UCX_NET_DEVICES would stop the job."""
    text = write(MACHINES["dgx1v"])
    assert "nics=mlx5_0" in run(program, "plan", dgx1v, stdin="step=0 visible=0\n")
    topology = catalog.load("dgx1v")
    nics = tuple(replace(nic, name=f"absent{i}") for i, nic in enumerate(topology.nics))
    table = tmp_path / "table"
    table.write_text(write(machine_of(replace(topology, nics=nics))))
    assert table.read_text() != text
    assert run(program, "plan", table, stdin="step=0 visible=0\n").endswith("nics=\n")


def test_device_files_are_looked_at_by_minor(program: Path, tmp_path: Path) -> None:
    """Slurm's GPU 1 of the reversed machine is device file 1; a missing file forbids nothing."""
    table, folder = tmp_path / "table", tmp_path / "dev"
    table.write_text(write(MACHINES["reversed"]))
    folder.mkdir()
    for minor in (0, 1, 4):
        (folder / f"gpu{minor}").touch()
    found = run(program, "devices", folder / "gpu", table)
    assert found == "known=1 restricted=0 minors=1 open=0,1,4\n"
    assert run(program, "devices", folder / "x", table) == "known=0 restricted=0 minors=1 open=\n"
