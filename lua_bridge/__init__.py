"""The Lua job_submit script and its modules, as package data."""
