"""The best matching of a pattern onto a node's links, exactly, for every set of GPUs."""
