"""Enforcement without a plugin in C: every GPU is a GRES type, and jobs are given exact ones."""
