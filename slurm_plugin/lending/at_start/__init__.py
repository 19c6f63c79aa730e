"""Loans under `enforcement: select`, where GPUs are chosen at the moment a job starts."""
