import pytest


@pytest.fixture
def cluster(slurm_cluster):
    return slurm_cluster(
        nodes={"dgx[1-2]": "dgx1v", "cpu1": ""}, release="24.11", enforcement="select"
    )
