"""Defragmentation: which running jobs, moved where, would free what; and moving them.

Only jobs that say so (`movable`) and that Slurm may requeue are moved, one at a time, none twice.
"""
