"""Attacks: what users of a site could try, each against the parts that are shipped."""

from acting_harness import part

from tests.lua_bridge.conftest import deadline_ms, engine, eventually, installed, lua, start_lua

__all__ = ["deadline_ms", "engine", "eventually", "installed", "lua", "part", "start_lua"]
