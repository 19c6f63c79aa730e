"""The engine: one asyncio process on a Unix socket that answers slurmctld's questions."""
