"""Benchmarks of an engine that keeps a large cluster."""
