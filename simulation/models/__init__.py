"""The simulators, one per kind of scheduling, and the models of how long a job runs.

`placing`: whole nodes and GPUs by a placing policy; `shaping`: jobs whose shape a scheduler
chooses; `queued_loans` and `planned_loans`: jobs that may borrow GPUs of other nodes, one by one
or planned together; `speed`: execution times.
"""
