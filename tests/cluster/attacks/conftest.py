"""Attacks: what users of a site could try, each against the parts that are shipped."""

from tests.lua_bridge.conftest import deadline_ms, engine, eventually, installed, lua, start_lua

__all__ = ["deadline_ms", "engine", "eventually", "installed", "lua", "start_lua"]
