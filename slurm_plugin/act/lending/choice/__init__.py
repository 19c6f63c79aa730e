"""Which GPUs of which nodes a job is lent: the R queue's rules, or DRMaestro's answer for all jobs.

Pure, but for the process in which DRMaestro's solver runs.
"""
