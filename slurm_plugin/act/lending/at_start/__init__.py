"""Loans under `enforcement: select`, where GPUs are chosen at the moment a job starts.

`planning` says what is to be done with the jobs of one snapshot, `reconciler` does it with the
updates of `start_loans`, `reservations` keeps GPUs for loans that are being made.
"""
