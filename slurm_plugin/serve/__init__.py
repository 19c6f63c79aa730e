"""The engine: one asyncio process on a Unix socket, in which all other rooms are put together.

`run` starts it; `setup` builds everything of one configuration, which a reload swaps as a whole.
`server` reads lines, `service` answers them; `loops` poll Slurm's queue, each for one purpose.
"""
