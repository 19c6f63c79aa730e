"""Whether jobs wait longer under `horizon` than under simple policies, on workloads of many kinds.

`workloads` has the workloads, `judging` what is compared and how sure that is.
"""
