"""`gputopo explain`: why a job got its GPUs.

`find` looks where it may: in the decision log (`search`), at the engine (`remote` asks, `listener`
and `answer` reply), or at Slurm (`slurm_says`). `story` orders what was found, `text` puts it in
words. `gains` sums the log up for `gputopo report`.
"""
