"""A wait that comes to nothing says how things stood."""

import pytest

from slurm_cluster.hosts import ClusterError, until
from slurm_cluster.slurm import Slurm

SHOWN = "7 wrap alice PENDING BeginTime 1 [gpu-slots: gated loan=dgx1/c0,dgx2/3/8/50000]"


class Shells:
    """Answers `true`, and says how things stand, or hangs."""

    def __init__(self, shown: str | None) -> None:
        self.shown = shown

    def run(self, host: str, words: list[str], *_: object) -> tuple[int, str, str]:
        if words[-1] == "true":
            return 0, "", ""
        assert words[-2:] == ["clusterctl", "standing"]
        if self.shown is None:
            raise TimeoutError
        return 0, self.shown, ""


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        pytest.param(SHOWN, SHOWN, id="jobs with their gates and loans"),
        pytest.param(None, "the container hangs (is it paused?)", id="a controller that hangs"),
    ],
)
def test_the_error_of_a_wait_tells(shown, says):
    slurm = Slurm.__new__(Slurm)
    slurm._shells = Shells(shown)
    with pytest.raises(ClusterError) as error:
        until(lambda: slurm.run("ctl", "true").code, "the job runs", 0)
    assert str(error.value).startswith("not within 0 s: the job runs\n")
    assert says in str(error.value)
