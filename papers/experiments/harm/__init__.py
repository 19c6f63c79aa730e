"""Whether jobs wait longer under `horizon` than under other policies, on workloads of many kinds.

`workloads` has the workloads, `judging` what is compared and how sure that is, `runs` what is run
for the page that `page` writes.
"""
