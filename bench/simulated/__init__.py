"""Benchmarks of whole simulated runs: how long they take, and how long jobs wait in them."""
