SUBMITIT = """
import submitit

def add(a, b):
    return a + b

executor = submitit.AutoExecutor(folder="log_test")
executor.update_parameters(timeout_min=1, slurm_partition="gpu", gpus_per_node=2)
job = executor.submit(add, 5, 7)
print(job.result())
"""


def test_submitit(cluster):
    python = cluster.install("submitit")
    cluster.put("ctl", "/home/alice/job.py", SUBMITIT, user="alice")
    assert cluster.run("ctl", [python, "job.py"], user="alice").out == "12\n"


DASK = """
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    options = dict(queue="gpu", cores=1, memory="500MB", walltime="00:05:00", interface="eth0")
    with SLURMCluster(**options) as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=60)
        print(sum(client.gather(client.map(lambda x: x * x, range(10)))))
"""


def test_dask_jobqueue(cluster):
    python = cluster.install("dask-jobqueue", user="bob")
    cluster.put("ctl", "/home/bob/job.py", DASK, user="bob")
    output = cluster.run("ctl", [python, "job.py"], user="bob", timeout_s=120)
    assert output.out == "285\n"
