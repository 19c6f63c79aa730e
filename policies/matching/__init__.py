"""Patterns laid onto the links of a node: the best match of every set of GPUs, or of a large node.

`solvers` scores all sets of a node at once, one solver per shape of pattern; `large` and `search`
answer for nodes and patterns too large for that.
"""
