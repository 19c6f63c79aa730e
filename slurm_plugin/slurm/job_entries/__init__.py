"""What the engine itself knows of our entries in AdminComment (`job_notes` has their grammar).

Users and other tools may overwrite the whole field. So whoever reads the queue through `client`
sees each job with its entries as the engine knows them (`store`), and what others overwrote is put
back. `rules` says which entries a job needs at Slurm, `issued` which of those that a new job shows
are ours; `saved` keeps them on disk for an engine that starts anew, and for `gputopo explain`.
"""
