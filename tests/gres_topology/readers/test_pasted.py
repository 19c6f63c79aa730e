"""Reports as people paste them into issues, mails and chats: read as the report itself."""

import functools
import json
import re
import time
from pathlib import Path

import pytest

import gres_topology
from gres_topology import TopologyError, catalog
from gres_topology.readers import pasted, saved
from slurm_cluster.fake_tools import fake_tools

ASSETS = Path(__file__).parents[1] / "assets"
#: One of them for each machine.
PRINTED = ("nvidia-smi/topo-m.txt", "rocm-smi/showtopo.txt", "xpu-smi/topology.txt")


def read(text):
    """The topology as plain values, without where it was read from."""
    found = gres_topology.read(text + "\n", name="node", source="node.txt")
    return {**saved.to_dict(found), "source": ""}


@functools.cache
def reports():
    """What the readers' tests read, and what a tool would print on each machine of the catalog."""
    texts = {f.stem: f.read_text() for f in ASSETS.glob("*.txt") if "p2p" not in f.name}
    for name in catalog.names():
        topology = catalog.load(name)
        tools = fake_tools(topology)
        (text,) = (tools[path] for path in PRINTED if path in tools)
        texts[f"{name} printed"] = text
        if name in ("dgx1v", "mi250x"):
            texts[f"{name} saved"] = json.dumps(saved.to_dict(topology), indent=1)
            texts[f"{name} declared"] = (Path(catalog.__file__).parent / f"{name}.yaml").read_text()
    return {name: (text, read(text)) for name, text in sorted(texts.items())}


def before_lines(sign):
    return lambda text: "\n".join((sign + line).rstrip(" ") for line in text.split("\n"))


def in_header(first, last):
    """Around the header, where drivers underline it."""

    def mark(text):
        return re.sub(r"^([ \t]*GPU0\b.*)$", rf"{first}\1{last}", text, count=1, flags=re.M)

    return mark


def as_cat_shows(text):
    return text.replace("\t", "^I").replace("\n", "$\n")


#: Forms that any report comes in, and those only of tables: a document may hold such a text.
ANY = [
    ("as it is", lambda text: text),
    ("commented out", before_lines("# ")),
    ("commented out twice", before_lines("## ")),
    ("in a comment of C", before_lines("// ")),
    ("quoted", before_lines("> ")),
    ("quoted twice", before_lines("> > ")),
    ("quoted twice without blanks", before_lines(">> ")),
    ("a quotation of a comment", before_lines("> # ")),
    ("a comment in a quotation in a comment", before_lines("# > # ")),
    ("added by a patch", before_lines("+")),
    ("labelled by srun", before_lines("0: ")),
    ("labelled by srun, quoted", before_lines("> 3: ")),
    ("labelled by pdsh", before_lines("gpu-7.site: ")),
    ("indented as code", before_lines("    ")),
    ("indented with tabs", before_lines("\t")),
    ("in a fence", lambda text: f"```\n{text}\n```\n"),
    ("in a fence with a language", lambda text: f"~~~text\n{text}\n~~~\n"),
    ("in a quoted fence", lambda text: before_lines("> ")(f"```console\n{text}\n```")),
    ("in an indented fence of a list", lambda text: before_lines("  ")(f"```\n{text}\n```")),
    ("in Jira's braces", lambda text: f"{{noformat:title=dgx7}}\n{text}\n{{noformat}}"),
    ("below a prompt", lambda text: f"$ nvidia-smi topo -m\n{text}"),
    ("below a prompt with a host", lambda text: f"me@dgx7:~/a b$ cat report\n{text}\nme@dgx7:~$ "),
    ("below root's prompt", lambda text: f"[root@dgx7 ~]# rocm-smi\n{text}\n[root@dgx7 ~]# "),
    ("below a prompt with an environment", lambda text: f"(base) me@dgx7:~$ lstopo\n{text}"),
    ("below a bare command", lambda text: f"sudo nvidia-smi topo -m\n{text}"),
    ("a prompt in a fence in a quotation", lambda text: before_lines("> ")(
        f"```\n$ numactl --hardware\n{text}\n$\n```")),
    ("with Windows line ends", lambda text: text.replace("\n", "\r\n")),
    ("quoted with Windows line ends", lambda text: before_lines("> ")(text).replace("\n", "\r\n")),
    ("with a byte order mark", lambda text: "\ufeff" + text),
    ("with a window's title", lambda text: f"\x1b]0;me@dgx7: ~\x07{text}"),
]  # fmt: skip
TABLES = [
    ("underlined", in_header("\x1b[4m", "\x1b[0m")),
    ("underlined, as cat -v shows it", in_header("^[[4m", "^[[0m")),
    ("underlined, as a language writes it", in_header(r"\\x1b[4m", r"\\x1b[0m")),
    ("underlined, as C writes it", in_header(r"\\033[4m", r"\\033[0m")),
    ("underlined, as JSON writes it", in_header(r"\\u001b[4m", r"\\u001b[0m")),
    ("underlined, with the ESC as a picture", in_header("\u241b[4m", "\u241b[0m")),
    ("underlined, with the ESC lost", in_header("[4m", "[0m")),
    ("in colours, with the ESC lost", in_header("[1;4;38;5;12m", "[m")),
    ("as cat -A shows it", as_cat_shows),
    ("as cat -A shows Windows line ends", lambda text: as_cat_shows(text.replace("\n", "^M\n"))),
    ("underlined, as cat -v shows it, quoted", lambda text: before_lines("> ")(
        in_header("^[[4m", "^[[0m")(text))),
    ("with blanks of a web page", lambda text: text.replace("  ", "\xa0 ")),
]  # fmt: skip


def is_table(name, text):
    return not re.match(r"\s*(#.*\n\s*)*[<{]", text) and not name.endswith("declared")


@pytest.mark.parametrize(("form", "paste"), ANY, ids=[form for form, _ in ANY])
def test_every_report_is_read_in_this_form(form, paste):
    for name, (text, expected) in reports().items():
        assert read(paste(text)) == expected, name


@pytest.mark.parametrize(("form", "paste"), TABLES, ids=[form for form, _ in TABLES])
def test_every_table_is_read_in_this_form(form, paste):
    for name, (text, expected) in reports().items():
        if is_table(name, text):
            assert read(paste(text)) == expected, name


@pytest.mark.parametrize(("form", "paste"), ANY, ids=[form for form, _ in ANY])
def test_a_cut_report_is_refused_with_the_line_of_the_file(form, paste):
    """As the report itself; the line is further down by those that the form put above."""
    text = reports()["dgx1v printed"][0]
    cut = "\n".join(text.split("\n")[:6]) + "\nGPU5\tSYS"
    above = paste("X7").split("X7")[0].count("\n")
    with pytest.raises(TopologyError, match=rf"node.txt line {7 + above}, cell GPU5-GPU1: missing"):
        read(paste(cut))


@pytest.mark.parametrize("sign", ["# ", "> ", "0: ", "    "])
def test_what_is_left_of_a_cut_report_means_the_same_in_any_form(sign):
    def outcome(text):
        try:
            return read(text)
        except TopologyError as error:
            return str(error)

    for name, (text, _) in reports().items():
        short = text[: int(len(text) * 0.6)]
        told = outcome(before_lines(sign)(short))
        if isinstance(told, str):
            told = told.replace(f"'{sign}", "'")
        assert told == outcome(short), name


KEPT = [
    ("a comment above the report stays one", "# of dgx7\n\tGPU0\n", "# of dgx7\n\tGPU0\n"),
    ("an older report in comments stays one", "#\tGPU0\n\tGPU0\n", "#\tGPU0\n\tGPU0\n"),
    ("an answer below a quotation stays", "> GPU0\nthanks\n", "GPU0\nthanks\n"),
    ("a mark of colour in a saved text stays", '{"name": "[4m"}', '{"name": "[4m"}'),
    ("text in quotes of XML stays", '<a\n> <b v="^[[0m"/></a>', '<a\n> <b v="^[[0m"/></a>'),
    ("tasks of several nodes are no label", "0: GPU0\n1: GPU0\n", "0: GPU0\n1: GPU0\n"),
    ("distances of NUMA nodes are no label", "node\n 0: 10 21\n", "node\n 0: 10 21\n"),
    ("a list that begins with an m is no colour", "NICs [mlx5_0]\n", "NICs [mlx5_0]\n"),
    ("a list of machines is no fence", "a: `b`\n", "a: `b`\n"),
    ("a processor's speed is no prompt", "<i v='v4 @ 2.2GHz $'/>", "<i v='v4 @ 2.2GHz $'/>"),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "text", "left"), KEPT, ids=[k[0] for k in KEPT])
def test_what_is_no_mark_of_pasting_stays(sentence, text, left):
    assert pasted.clean(text) == left


SIZE = 256 * 1024
HOSTILE = [
    *(
        ">",
        "> ",
        ">\n",
        "#\n",
        "# ",
        "> # | ",
        "> # x\n",
        "// ",
        "0: ",
        "0:\n",
        "`",
        "```\n",
        "{code:",
    ),
    *("\x1b[", "\x1b[0", "\x1b]", "^[[", "[0;", "^I", "$ ", "$\n", "$x", "a@", "a@b\n", "srun "),
    *("(a)", "(a) ", " ", "\t", "\n", "\r", "\xa0", "{", "[", "<", "GPU", "GPU0 "),
]


@pytest.mark.parametrize("mark", HOSTILE)
@pytest.mark.parametrize("end", ["", "\x01"], ids=["whole", "broken at its end"])
def test_no_heap_of_marks_takes_longer_than_its_length(mark, end):
    """A step that were not linear would take hours on the 16 MiB that are read at the most."""
    text = mark * (SIZE // len(mark)) + end
    start = time.process_time()
    pasted.clean(text)
    assert time.process_time() - start < 5
