"""The benchmarks that need the live cluster, and the demo; `cluster` brings it up for them."""
