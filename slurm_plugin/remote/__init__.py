"""GPUs lent over the network: middleware presets, and the programs that run on the nodes."""
