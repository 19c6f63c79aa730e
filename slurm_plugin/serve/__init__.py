"""The engine: one asyncio process on a Unix socket. All other rooms are put together here."""
