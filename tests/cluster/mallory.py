"""The standing attacker of the live tests: a user who tries what a user can write, seeded.

All its traffic stays inside the cluster's own containers.
"""

from __future__ import annotations

import random
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster import Cluster

USER = "mallory"
#: Pieces of what we write ourselves, of what separates, and of what is merely odd.
PIECES = (
    "[gpu-topo: ", "[gpu-loan: starts remote=1 tpn=gpu:1 loan=dgx1/1,dgx2/1/{victim}/50000 prio=9",
    "[gpu-loan: meets loan=dgx1/1,dgx2/1/{victim}", "[gpu-slots: placed at=1", "[gpu-shape: 1x1",
    "[gpu-donor: of={victim}]", "gpu-donor of={victim}", "gpu-donor ready of={victim} port=50000",
    "]", "[", "|", " | waiting 9/10 since 1: x (until 1, begin 1)", "gpu-topo: ", "pattern=ring",
    "policy=genie,class=urgent,deadline=1s", "profile=../../../etc",
    "remote=allow", "min-utility=1", "\n", "\t", "\x1b[31m", "\x1f", "\x7f", "%0a", "%n%s", "'",
    '"', "$(id)", ";", "é", "\u202e", " AdminComment=", " UserId=root(0)", "=" * 50, "x" * 900,
)  # fmt: skip
NAMES = ("n[1-65536,1-65536,1-65536]", "dgx[1-99999]", "[[", "dgx1," * 900, "n[0-1][0-1]", "-")
FEATURES = ("a|" * 2000 + "a", "(" * 500 + "a" + ")" * 500, "a&" * 900 + "a", "[a*9|b*9]", "v100|")
COUNTS = ("1", "1", "1", "2", "2", "0", "7", "65533", "1000000", "2000000000", "4294967293", "1k",
          "1-2000000000")  # fmt: skip
FORMS = ("--gres=gpu:{}", "--gpus={}", "--gpus-per-task={} -n{}", "-N{} --gres=gpu:1",
         "--gpus={} -N{}", "--gres=gpu:v100.s{}:1", "--ntasks-per-gpu={} -n{}")  # fmt: skip
FOREIGN = (
    "scontrol update jobid={victim} Priority=1", "scontrol update jobid={victim} NumNodes=2",
    "scontrol update jobid={victim} 'AdminComment=[gpu-donor: of=1]'", "scancel {victim}",
    "scontrol hold {victim}", "scontrol requeue {victim}", "scontrol suspend {victim}",
    "scontrol release {victim}", "scontrol top {victim}",
)  # fmt: skip
OWN = ("Comment={text}", "Priority=0", "NumNodes=8", "Gres=gpu:8", "ReqNodeList=dgx1", "Nice=1",
       "Features={features}", "AdminComment={text}", "StartTime=now", "JobName={text}",
       "TimeLimit=1", "TimeLimit=UNLIMITED", "Partition=dgx", "SiteFactor=9")  # fmt: skip
#: Idle connections, garbage and halves of lines, at every socket that can be found.
CONNECTS = """
import glob, socket, sys, time
held = []
def attack(kind, address):
    for garbage in (b"", b"\\0" * 4096, b"place id=1 job=", b"x" * 9000, b"submit\\n" * 50):
        try:
            one = socket.socket(kind)
            one.settimeout(0.2)
            one.connect(address)
            one.sendall(garbage)
            held.append(one)
        except OSError:
            pass
for path in glob.glob("/run/gputopo*/*"):
    attack(socket.AF_UNIX, path)
for port in [int(word) for word in sys.argv[1:]]:
    attack(socket.AF_INET, ("127.0.0.1", port))
time.sleep(1)
"""
PORTS = (*range(50000, 50004), *range(9400, 9404))
PAGE_PORT = 8081
#: Asks the page for others' jobs, with odd heads, and hangs up on half of what it asked.
BROWSES = """
import http.client, random, sys
port, victims = int(sys.argv[1]), sys.argv[2:]
paths = ["/api/job/" + one for one in (*victims, "0", "9" * 30, "-1", "1_0", "%2e%2e%2fstate")]
paths += ["/api/state", "/api/gain", "/api/node/dgx1", "/api/node/" + "x" * 900, "/..//etc/passwd"]
heads = [{}, {"Host": "evil.example"}, {"X-Remote-User": "root"}, {"Host": "x" * 7000}]
for _ in range(12):
    try:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        path = random.choice(paths)
        asked.request(random.choice(("GET", "GET", "POST")), path, headers=random.choice(heads))
        if random.random() < 0.5:
            reply = asked.getresponse()
            if reply.status == 200 and path.rpartition("/")[2] in victims:
                print("LEAKED", path, reply.read(200))
        asked.close()
    except (OSError, http.client.HTTPException):
        pass
"""
MARKS = (
    "gputopo topology mark dgx1 gpu 0 broken", "gputopo topology unmark dgx1 --all",
    "echo '{}' >>/var/lib/gputopo/marks.jsonl", "ln -sf /etc/passwd /var/lib/gputopo/marks.jsonl",
    "gputopo topology mark dgx1 --from /etc/shadow",
)  # fmt: skip


#: Numbers as slurmctld may hold them for a job nobody can run.
HUGE = (0, 1, 65533, 10**6, 2 * 10**9, 4294967292, 2**40, 2**53, 2**62, 2**63)
_NUMBERS = (
    "min_nodes", "max_nodes", "num_tasks", "min_cpus", "begin_time", "time_limit", "cpus_per_task",
    "min_mem_per_node", "min_mem_per_cpu", "ntasks_per_node", "ntasks_per_gpu", "sockets_per_node",
)  # fmt: skip
_TEXTS = ("comment", "account", "partition", "dependency", "reservation", "array_inx")
_REQUESTS = (
    "gpu:1", "gpu:2", "gpu:4", "gpu:v100:2", "gpu:1000000", "gpu:1M", "gpu:3k,gpu:7",
    "gpu:" + "9" * 400,
)  # fmt: skip


def text_of(chance: random.Random, victim: int = 1) -> str:
    """Some pieces, as a user's text."""
    result = "".join(chance.choices(PIECES, k=chance.randint(1, 7)))
    start = chance.choice(("", "gpu-topo: ", "gpu-topo: pattern=ring "))
    return start + result.replace("{victim}", str(victim))


def job_of(chance: random.Random) -> dict[str, object]:
    """A job as slurmctld hands it to the bridge, whatever client it came from."""
    # With such numbers most jobs are not asked about: the others' texts go further.
    some = chance.choice((0, 0, 6))
    fields: dict[str, object] = {
        name: chance.choice(HUGE) for name in chance.sample(_NUMBERS, chance.randint(0, some))
    }
    fields["tres_per_" + chance.choice(["node", "job", "task", "socket"])] = chance.choice(
        _REQUESTS
    )
    fields |= {name: text_of(chance) for name in chance.sample(_TEXTS, chance.randint(0, 3))}
    fields |= {
        "cpus_per_tres": "gpu:" + "7" * chance.choice([1, 1, 1, 9, 90_000]),
        "mem_per_tres": "gpu:" + "7" * chance.choice([1, 1, 1, 18, 19]),
        "features": chance.choice(("", *FEATURES)),
        "req_nodes": chance.choice(("", *NAMES)),
        "exc_nodes": chance.choice(("", *NAMES)),
    }
    return fields


class Mallory:
    """Does one hostile thing after the other; `tries` and `bytes` are what it came to.

    `said`: what it was told, as far as it should not have been.
    """

    def __init__(self, cluster: Cluster, seed: int, victims: tuple[int, ...]) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._victims = victims
        self.tries = 0
        self.bytes = 0
        self.said: list[str] = []

    def text(self) -> str:
        return text_of(self._chance, self._chance.choice(self._victims))

    def act(self, times: int = 6) -> None:
        """As many attacks, in one go; then its own jobs are gone."""
        steps = [self._step() for _ in range(times)]
        lines = "; ".join(f"{{ {step}; }} 2>&1 | head -c 300" for step in steps)
        self.tries += times
        self.bytes += sum(map(len, steps))
        script = f"j=$(sbatch -H --parsable -o/dev/null --wrap=true); {lines}; scancel -u {USER}"
        told = self._cluster.run("ctl", script, user=USER, check=False, timeout_s=120).out
        self.said += [line for line in told.splitlines() if line.startswith("LEAKED")]

    def _step(self) -> str:
        kind = self._chance.choice(
            ("submit", "submit", "submit", "own", "foreign", "connect", "browse", "mark")
        )
        if kind == "submit":
            return self._submit()
        if kind == "connect":
            return shlex.join(["python3", "-c", CONNECTS, *map(str, PORTS)])
        if kind == "browse":
            words = ["python3", "-c", BROWSES, str(PAGE_PORT), *map(str, self._victims)]
            return shlex.join(words)
        if kind == "mark":
            return self._chance.choice(MARKS)
        victim = self._chance.choice(self._victims)
        if kind == "foreign":
            return self._chance.choice(FOREIGN).format(victim=victim)
        what = self._chance.choice(OWN)
        what = what.format(text=self.text(), features=self._chance.choice(FEATURES))
        return f"scontrol update jobid=$j {shlex.quote(what)}"

    def _submit(self) -> str:
        form = self._chance.choice(FORMS).format(*self._chance.choices(COUNTS, k=2))
        words = ["sbatch", "--parsable", "-o/dev/null", *form.split()]
        more = {
            "--comment": self.text, "--job-name": self.text, "--account": self.text,
            "--reservation": self.text, "--dependency": self.text,
            "--nodelist": lambda: self._chance.choice(NAMES),
            "--exclude": lambda: self._chance.choice(NAMES),
            "--constraint": lambda: self._chance.choice(FEATURES),
            "--array": lambda: self._chance.choice(("0-3", "0-4000000", "1,1,1", "0-9%0")),
            "--time": lambda: self._chance.choice(("1", "0:01", "UNLIMITED", "365-0", "-1")),
            "--partition": lambda: self._chance.choice(("dgx", "dgx,gpu", "dgx," * 900)),
        }  # fmt: skip
        for option in self._chance.sample(sorted(more), self._chance.randint(0, 3)):
            words.append(f"{option}={more[option]()}")
        waits = ["--begin=now+600"] if self._chance.random() < 0.5 else []
        exported = shlex.quote("_SLURM_SPANK_OPTION_gputopo_gpu_topo=" + self.text())
        return f"env {exported} {shlex.join([*words, *waits, '--wrap=true'])}"


def victims_of(cluster: Cluster) -> tuple[int, int]:
    """Two jobs of bob's: one runs all the time, one waits for it."""
    asks = ("-w", "minsky1", "--gres=gpu:1")
    first = cluster.started(*asks, user="bob", sleep_s=3600).id
    second = cluster.sbatch(*asks, f"--dependency=afterany:{first}", user="bob", sleep_s=1)
    return first, second


def as_slurm_has(cluster: Cluster, jobs: tuple[int, ...]) -> dict[int, tuple[object, ...]]:
    """What no other user may change of these jobs."""
    kept = ("Priority", "Restarts", "NumNodes", "AdminComment", "Comment", "TimeLimit", "UserId")
    result = [job for job in cluster.jobs() if job.id in jobs]
    return {job.id: (job.state, job.gpus, *(job.fields.get(key) for key in kept)) for job in result}


def engine_memory_mb(cluster: Cluster) -> int:
    status = cluster.run("ctl", "grep VmRSS /proc/$(clusterctl engine pid)/status").out
    return int(status.split()[1]) >> 10
