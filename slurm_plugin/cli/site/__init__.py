"""Commands for administrators: the engine, its settings and state, what it has gained."""
