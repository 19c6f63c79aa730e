"""What the simulator shows of policies."""
