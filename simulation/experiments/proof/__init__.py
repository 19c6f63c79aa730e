"""Every policy on every trace, at three loads, ten times: whether `horizon` is behind anywhere.

`cells` has the workloads, `judging` what counts and by how much, `page` the runs and their page,
docs/proof.md. What is judged, and how, was written down in docs/proof-plan.md before the first run.
"""
