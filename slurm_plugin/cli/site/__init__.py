"""Commands of whoever runs the cluster: the engine, its settings and state, what it has gained."""
