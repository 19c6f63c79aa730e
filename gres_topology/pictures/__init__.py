"""Pictures as SVG text, of one style: machines with their links, and who holds them.

`machine_picture` draws a machine, `sheet` puts several pictures on one. `Picture.svg()` is the
text; `write` makes a file of it, .svg or .png. A page that has pictures inline needs
`theme.css()` in its stylesheet.
"""

from gres_topology.pictures.machine import BUSY, Marks, machine_picture
from gres_topology.pictures.sheet import Pane, sheet
from gres_topology.pictures.svg import Picture, write

__all__ = ["BUSY", "Marks", "Pane", "Picture", "machine_picture", "sheet", "write"]
