"""What we keep of a job in its AdminComment, and what a donor's job says in its Comment.

    [gpu-topo: HINT | NOTE]              `hints`: the user's hint, and a note for people
    [gpu-shape: 2x4 key=value ...]       `shape`: the shape that GENIE chose
    [gpu-loan: meets loan=... ...]       `records`: a loan where GPUs are chosen at a job's start
    [gpu-slots: gated key=value ...]     `records`: a job's gate in the slots mode
    [gpu-donor: of=4711]                 `donor`: which job a donor lends to

Slurm alone keeps these entries, so an engine that starts knows what the last one was doing.
`brackets` has the grammar that they share. Everything but `shape` needs the standard library
alone: it is part of the program for the nodes.
"""
