"""Colours, dashes and patterns of every picture: for a light and a dark page, print and grey.

The colours are those of Okabe and Ito (Color Universal Design, 2008), which the colour-blind can
tell apart; some are lighter or darker here, for their contrast with the paper. None carries a
meaning alone: links have a dash beside it, jobs a pattern and their name.

A picture names no colours, only classes; `css` says what they look like. Each colour is a variable
(`--gt-ink`), so a page restyles all pictures by setting variables on any element around them.
"""

from __future__ import annotations

from collections.abc import Collection

from gres_topology import links

#: Role -> colour on light paper, on dark paper.
COLOURS = {
    "paper": ("#ffffff", "#16181d"),
    "ink": ("#1b1b1b", "#f2f2f2"),
    "soft": ("#595959", "#b3b3b3"),
    "line": ("#8a8a8a", "#8a8a8a"),
    "group": ("#f1f3f6", "#242832"),
    "nvlink": ("#009e73", "#1fc598"),
    "xgmi": ("#d55e00", "#f0843c"),
    "c2c": ("#b0558f", "#dc9cc0"),
    "pcie": ("#0072b2", "#56b4e9"),
    "sockets": ("#6b6b6b", "#a8a8a8"),
    "ring": ("#e69f00", "#e69f00"),
    "grid": ("#e2e2e2", "#3a3f4a"),
    # Lines of charts: as the jobs' colours, dark or light enough for a thin line.
    "series0": ("#2a86bd", "#56b4e9"),
    "series1": ("#b37400", "#e69f00"),
    "series2": ("#007f5c", "#1fc598"),
    "series3": ("#857700", "#f0e442"),
    "series4": ("#004c7a", "#7ea6ff"),
    "series5": ("#c04f00", "#f0843c"),
    "series6": ("#a8507f", "#dc9cc0"),
}
#: What jobs are filled with, and the colour of text on it; the same on light and dark paper.
JOBS = (
    ("#56b4e9", "#000000"),
    ("#e69f00", "#000000"),
    ("#009e73", "#000000"),
    ("#f0e442", "#000000"),
    ("#0072b2", "#ffffff"),
    ("#d55e00", "#000000"),
    ("#cc79a7", "#000000"),
)
#: Somebody's job of which nothing may be told.
BUSY = ("#c9c9c9", "#000000")
#: A job's GPUs where no holders are shown.
CHOSEN = ("#e69f00", "#000000")
#: Kind of link -> the pattern of its dashes; empty: a line without gaps.
DASHES = {
    "nvlink": "",
    "xgmi": "16 3",
    "xelink": "14 3 5 3",
    "c2c": "12 3 2 3",
    "pcie": "9 3",
    "host": "5 4",
    "sockets": "1.5 4",
}
#: Dashes of the lines of charts; as many as go through with the colours before both repeat.
LINE_DASHES = ("", "9 4", "2 3", "12 4 2 4", "5 2")
#: Shares from least to most; light ones stand on light paper, dark ones on dark paper alike.
SHADES = ("#d3e7f5", "#9ccae8", "#56a3d4", "#1f76b3", "#08436e")
#: Kinds of link that share a colour with another one.
_COLOUR_OF = {"host": "pcie", "xelink": "xgmi"}


def link_kind(label: str) -> str:
    """The kind of link (a key of DASHES) that a label of `gres_topology.links` belongs to."""
    if label == "C2C":
        return "c2c"
    if links.is_direct(label):
        families = {"NV": "nvlink", "XL": "xelink"}
        return families.get(label[:2], "xgmi")
    if label in {"PIX", "PXB"}:
        return "pcie"
    return "host" if label in {"PHB", "NODE", "PCIE"} else "sockets"


def variables(roles: Collection[str] = tuple(COLOURS), *, is_dark: bool) -> str:
    """Declarations of the variables of these roles, for a selector of a page's own."""
    return "".join(
        f"--gt-{role}:{pair[is_dark]};" for role, pair in COLOURS.items() if role in roles
    )


def css(only: Collection[str] | None = None, *, is_plain: bool = False) -> str:
    """The rules for all pictures, or for these classes (without gt-) alone.

    Dark colours apply where the reader's system is dark, never in print. A page with a switch of
    its own sets `variables` on `.gt-picture` for each of its sides. `is_plain` is for programs
    that know no variables: the light colours as they are.
    """
    used = {name: how for name, how in _RULES.items() if only is None or name in only}
    rules = "".join(f".gt-{name}{{{_declarations(how, is_plain)}}}" for name, how in used.items())
    if is_plain:
        return rules
    roles = {value for how in used.values() for value in how.values()}
    dark = variables(roles, is_dark=True)
    return f"{rules}@media screen and (prefers-color-scheme:dark){{:where(.gt-picture){{{dark}}}}}"


def _declarations(how: dict[str, str], is_plain: bool) -> str:
    parts = []
    for key, value in how.items():
        if value not in COLOURS:
            parts.append(f"{key}:{value}")
            continue
        light = COLOURS[value][0]
        parts.append(f"{key}:{light}")
        # A reader without variables keeps the line before.
        parts += [] if is_plain else [f"{key}:var(--gt-{value},{light})"]
    return ";".join(parts)


def _rules() -> dict[str, dict[str, str]]:
    """Class (without gt-) -> property -> a role of COLOURS, or CSS as it is."""
    rules = {
        "picture": {"font-family": "sans-serif"},
        "paper": {"fill": "paper"},
        "text": {"fill": "ink"},
        "soft": {"fill": "soft"},
        "group": {"fill": "group", "stroke": "line"},
        "free": {"fill": "paper", "stroke": "ink"},
        "edge": {"fill": "none", "stroke": "ink"},
        "faint": {"fill": "none", "stroke": "line"},
        "hub": {"fill": "paper", "stroke": "ink"},
        "beside": {"fill": "none", "stroke": "ink", "stroke-dasharray": "6 3"},
        "marked": {
            "fill": "none",
            "stroke": "ink",
            "stroke-dasharray": "1 5",
            "stroke-linecap": "round",
        },
        "ring": {"fill": "none", "stroke": "ring", "stroke-linecap": "round"},
        "rank": {"fill": "ink", "stroke": "paper"},
        "rank-text": {"fill": "paper"},
        "grid": {"fill": "none", "stroke": "grid"},
    }
    for kind, dash in DASHES.items():
        dashes = {"stroke-dasharray": dash} if dash else {}
        rules[kind] = {"fill": "none", "stroke": _COLOUR_OF.get(kind, kind)} | dashes
    for number in range(len(JOBS)):
        role = f"series{number}"
        rules[role] = {"fill": "none", "stroke": role}
        rules[f"dot{number}"] = {"fill": role}
    for number, shade in enumerate(SHADES, 1):
        rules[f"shade{number}"] = {"fill": shade}
    fills = {f"job{number}": pair for number, pair in enumerate(JOBS)}
    for name, (fill, ink) in (fills | {"busy": BUSY, "chosen": CHOSEN}).items():
        rules[name] = {"fill": fill, "stroke": "ink"}
        rules[f"{name}-text"] = {"fill": ink}
        rules[f"{name}-hatch"] = {"fill": "none", "stroke": ink}
    return rules


_RULES = _rules()
#: Patterns there are, no pattern being the first.
HATCHES = 8


def hatch(number: int, x: float, y: float, width: float, height: float) -> str:
    """The path of a pattern inside a rectangle; empty for number 0.

    Strokes up, strokes down, crosses, bars, a line, dots and zigzag follow.
    """
    steps = [x + at for at in range(0, int(width - height) + 1, int(height))]
    low, middle = y + height, y + height / 2
    up = "".join(f"M{at:g} {low:g}l{height:g} {-height:g}" for at in steps)
    down = "".join(f"M{at:g} {y:g}l{height:g} {height:g}" for at in steps)
    bars = "".join(f"M{at:g} {y:g}v{height:g}" for at in steps)
    line = f"M{x:g} {middle:g}h{width:g}"
    dots = "".join(f"M{at:g} {middle:g}h2" for at in steps)
    zigzag = f"M{x:g} {low:g}" + "".join(
        f"l{height / 2:g} {-height:g}l{height / 2:g} {height:g}" for _ in steps
    )
    return ("", up, down, up + down, bars, line, dots, zigzag)[number % HATCHES]
