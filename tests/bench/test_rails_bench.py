"""The benchmark of rails: its mix, what is counted, and who wins in the simulator."""

from __future__ import annotations

from bench.simulated import rails


def test_a_third_of_the_jobs_have_several_nodes_and_seeds_differ() -> None:
    jobs = rails.mix(1, 600, 0.85)
    several = [job for job in jobs if len(job.gpus_per_node) > 1]
    assert 0.28 < len(several) / len(jobs) < 0.39
    assert {len(job.gpus_per_node) for job in several} == set(range(2, rails.MOST_NODES + 1))
    assert all(len(set(job.gpus_per_node)) == 1 for job in several)
    assert jobs != rails.mix(2, 600, 0.85)


def test_less_crosses_the_spine_than_under_stock_slurm_and_without_rails(monkeypatch) -> None:
    monkeypatch.setenv("RAILS_SEEDS", "2")
    monkeypatch.setenv("RAILS_JOBS", "300")
    monkeypatch.setenv("RAILS_LOADS", "0.85")
    told = list(rails.run())
    assert [figure.name for figure in told] == ["rails.85.ring", "rails.85.tree"]
    for figure in told:
        assert figure.ok, figure.line()
        ours, blind = sum(figure.detail["mapa"]), sum(figure.detail["blind"])
        assert ours < 0.9 * blind
        assert 0 < figure.value < 1
