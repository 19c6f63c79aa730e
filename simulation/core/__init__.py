"""What every simulator uses: the clock, jobs, the queue's order, occupied GPUs, records."""
