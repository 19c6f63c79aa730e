"""`gputopo topology collect`: read the nodes' hardware through Slurm, and remember it.

`snippet` is what runs on a node, `read_node` makes a topology of its output, `run` asks the nodes,
`learn/collected` keeps what was found.
"""
