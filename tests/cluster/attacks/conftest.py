"""Attacks: what users of a site could try, each against the parts that are shipped.

Tests of the bridge alone run it in a Lua 5.1 as slurmctld embeds it; the others are live.
"""

from tests.lua_bridge.conftest import deadline_ms, engine, eventually, installed, lua, start_lua

__all__ = ["deadline_ms", "engine", "eventually", "installed", "lua", "start_lua"]
