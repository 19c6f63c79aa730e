def test_a_job_of_two_gpus_gets_a_pair_with_a_link(cluster):
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(jobid).gpus == {"dgx1": (0, 3)}
    assert cluster.visible_gpus(jobid) == (0, 3)


def test_without_a_plugin_in_c(slurm_cluster):
    cluster = slurm_cluster(nodes={"dgx[1-2]": "dgx1v", "cpu1": ""}, enforcement="slots")
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=1)
    assert cluster.wait_running(jobid).gpus == {"dgx1": (0, 3)}
    cluster.wait_finished(jobid)


def test_a_job_survives_a_node_that_stands_still(cluster):
    jobid = cluster.sbatch("-w", "dgx2", "--gres=gpu:1", sleep_s=5)
    cluster.wait_running(jobid)
    with cluster.paused("dgx2"):
        assert cluster.job(jobid).state == "RUNNING"
    assert cluster.wait_finished(jobid).state == "COMPLETED"


def test_that_fails(cluster):
    jobid = cluster.sbatch("-w", "dgx1", script="exit 3")
    assert cluster.wait_finished(jobid).state == "COMPLETED"
