"""What passing within a bound is worth on one pool of GPUs: logs that there are."""
