"""Asks the Lua that slurmctld embeds, in a process of its own: has it LuaSocket, reads it a script?

job_submit_lua.so names the libraries that Slurm opens, in the order in which it tries them; which
release of Lua that is was decided when Slurm was built.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from gres_topology import plain_file

PLUGIN = "job_submit_lua.so"
_LIBRARY = re.compile(rb"liblua[\w.+-]*\.so[\d.]*")
_ASKED_S = 10
_LUA_SOCKET = 'require "socket.unix" require "socket"'
#: Compiled, and not run.
_SCRIPT = "local script, why = loadfile('{}') if not script then error(why, 0) end"
#: Runs argv[1] in the first of the libraries; prints nothing when all is well, else the reason. Lua
#: 5.1 has lua_pcall, later ones lua_pcallk.
_ASK = """
import ctypes, sys
for name in sys.argv[2:]:
    try:
        lua = ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        break
    except OSError:
        pass
else:
    sys.exit("none of " + ", ".join(sys.argv[2:]) + " can be loaded")
lua.luaL_newstate.restype = ctypes.c_void_p
lua.lua_tolstring.restype = ctypes.c_char_p
state = ctypes.c_void_p(lua.luaL_newstate())
lua.luaL_openlibs(state)
lua.luaL_loadstring(state, sys.argv[1].encode())
call = lua.lua_pcall if hasattr(lua, "lua_pcall") else lua.lua_pcallk
rest = () if hasattr(lua, "lua_pcall") else (ctypes.c_void_p(), ctypes.c_void_p())
if call(state, 0, 0, 0, *rest):
    text = lua.lua_tolstring(state, -1, None) or b"no reason given"
    sys.exit(name + ": " + text.decode(errors="replace").splitlines()[0])
"""


def obstacle(folders: Iterable[Path]) -> str | None:
    """Why the bridge would not work in slurmctld; None if it does. `folders` are PluginDir's."""
    return _said(_LUA_SOCKET, folders)


def mistake_in(script: Path, folders: Iterable[Path]) -> str | None:
    """Why slurmctld could not load this script; None where it can, or its Lua cannot be asked."""
    name = "".join(f"\\{byte:03d}" for byte in os.fsencode(script))
    said = _said(_SCRIPT.format(name), folders)
    # It begins with the library's name.
    return said.partition(": ")[2] if said is not None and script.name in said else None


def _said(source: str, folders: Iterable[Path]) -> str | None:
    plugins = [folder / PLUGIN for folder in folders if (folder / PLUGIN).is_file()]
    if not plugins:
        return f"no directory of PluginDir has {PLUGIN}"
    try:
        names = [name.decode() for name in _LIBRARY.findall(plain_file.read_bytes(plugins[0]))]
        # Isolated, and not in the folder where root stands: Python and Lua look for modules there.
        argv = [sys.executable, "-I", "-c", _ASK, source, *dict.fromkeys(names)]
        done = subprocess.run(
            argv,
            cwd="/",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ASKED_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{plugins[0]}: its Lua cannot be asked: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return lines[-1]
    return None
