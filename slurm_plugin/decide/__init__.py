"""One decision: a question about a job becomes an answer of a policy, and a line of the log.

`decide` is the way through: `rules` and `preferences` say what counts for the job, `machines` (read
by `load_machines`) what the nodes are made of, `neighbours` who runs beside it; the policy is one
of `site_policies`. `record` makes the log's line, `decision_log` writes it, `judge` scores what
Slurm itself would have taken. `learning` and `usual_jobs` learn from jobs that ended.
"""
