"""Enforcement without a plugin in C: a GRES type per GPU, and jobs that wait behind gates."""
