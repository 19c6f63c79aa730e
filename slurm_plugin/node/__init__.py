"""What runs on the nodes: `remote` for lent GPUs, `launch` at a task's start, `carry` in C."""
