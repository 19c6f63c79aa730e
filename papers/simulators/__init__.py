"""The simulators of what only papers compare, on the clock and the jobs of `simulation.core`.

`shaping`: jobs whose shape a scheduler chooses; `queued_loans` and `planned_loans`: jobs that may
borrow GPUs of other nodes, one by one in `queues` or planned together.
"""
