"""One decision: a question about a job becomes an answer of a policy, and a line of the log.

`decide` makes it: `rules` and `preferences` say what counts for the job, `machines` (read by
`load_machines`) what the nodes are made of, `neighbours` who runs beside it; `site_policies` has
the policies. `record` makes the log's line (`base/log_lines`), `decision_log` writes
it. `learning` and `usual_jobs` learn from jobs that ended.
"""
