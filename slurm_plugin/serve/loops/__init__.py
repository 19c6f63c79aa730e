"""Loops of the engine, each of which polls Slurm's queue for one purpose while the engine runs.

`queue_loop` is what they share, `poll_schedule` when one is due. `gates` lets jobs of the slots
mode start, `lending` lends GPUs in the select mode, `shaping` chooses shapes by GENIE,
`neighbours` learns who runs beside whom, and `network` which nodes hang together.
"""
