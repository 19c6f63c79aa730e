"""Pictures as SVG text, of one style: machines with their links, and who holds them.

`machine_svg` draws a machine; `theme.css()` is what a page that has pictures inline needs in its
stylesheet; `write` makes a file, .svg or .png. Nothing here opens a window or keeps a state.
"""

from gres_topology.pictures.machine import BUSY, Marks, machine_svg
from gres_topology.pictures.svg import write

__all__ = ["BUSY", "Marks", "machine_svg", "write"]
