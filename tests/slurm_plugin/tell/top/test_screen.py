"""The page's view on a terminal: every line fits, the right GPUs have the right marks."""

import asyncio
import io

import pytest
from rich.console import Console
from web_in_tests import ALICE, SCRIPT, Site, played, running, seen

from slurm_plugin.tell.top.screen import COLOURS, LETTERS, Reader, screen
from slurm_plugin.tell.top.terminal import Top

SENTENCE = "Job 9 waits for 8 free GPUs on one node: 9 are free; job 10 of bob comes first."


def lines(view, width=80, height=24, place=None):
    return [one.plain for one in screen(view, place or Reader(), width, height, "12:00:00")]


def printed(site: Site, uid: int | None) -> str:
    """What `gputopo top` prints where its output is no terminal."""
    console = Console(file=io.StringIO(), width=80, highlight=False)
    asyncio.run(Top(site.sources, uid, console).once())
    return console.file.getvalue()


@pytest.fixture
def view(tmp_path):
    return seen(Site(tmp_path), 0)


def test_a_job_that_may_be_seen_has_its_letter_on_its_gpus(view):
    text = "\n".join(lines(view))
    letter = LETTERS[7]
    # Job 7 holds GPUs 0 and 3 of dgx1; the others are free and stranded.
    assert f"dgx1 {letter}!!{letter}!!!!" in text
    assert f"\n{letter} 7  bob  runs on dgx1: 3,0  39.1 GB/s" in text


def test_lines_of_the_log_that_cannot_be_read_are_left_out_and_counted(tmp_path):
    site = Site(tmp_path)
    with site.log.path.open("ab") as log:
        log.write(b'{"job":7,"decision":"lent","host":"dgx1","gpus":[0],"donors":[]}\nno json\n')
        log.write(b'{"job":7,"decision":"use","chosen":{"gpus":[0,3]}}\n')
    told = " ".join(printed(site, None).split())
    assert "decision log: 2 lines of it cannot be read, and left out" in told
    assert "7 bob runs on dgx1: 3,0 39.1 GB/s" in told
    assert "cannot be read" not in printed(site, ALICE)


def test_waiting_jobs_stand_in_their_order_with_their_sentences(view):
    view["jobs"]["9"]["sentence"] = SENTENCE
    view["jobs"]["10"] |= {"sentence": "", "reason": "Priority"}
    text = " ".join(" ".join(lines(view, height=60)).split())
    assert "Slurm says: Priority" in text
    assert SENTENCE in text
    assert text.index("10  bob".replace("  ", " ")) < text.index("9 alice")
    assert "Waiting: 2 -" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (10, 3)])
def test_no_line_is_wider_and_none_more_than_the_screen_has(view, width, height):
    for index in range(30):
        view["jobs"][str(100 + index)] = view["jobs"]["9"] | {"asked": "x" * 300, "name": "y" * 90}
    found = screen(view, Reader(), width, height, "12:00:00")
    assert len(found) == max(height, 10)
    assert max(one.cell_len for one in found) <= max(width, 40)


def test_the_figures_take_two_lines_where_one_is_too_narrow(view):
    free, largest = "12:00:00  9 of 16 GPUs free, 9 stranded", "6 on one node, 12 on 2 nodes"
    view["figures"]["largest_over_nodes"] = (2, 6)
    assert lines(view, 100)[0] == f"{free}; largest job that fits now: {largest}"
    assert lines(view, 80)[:2] == [free, f"largest job that fits now: {largest}"]


def test_nobody_scrolls_beyond_the_end(view):
    for index in range(200):
        view["nodes"][f"n{index}"] = view["nodes"]["dgx1"]
        view["jobs"][str(100 + index)] = view["jobs"]["9"]
    place = Reader(10_000, 10_000)
    found = lines(view, place=place)
    assert "n199 " in "\n".join(found)
    assert "n0 " not in "\n".join(found)
    assert place.nodes < 210
    assert place.jobs < 1000
    assert any("lines " in line and " of " in line for line in found)


def test_nodes_are_in_the_order_of_their_numbers(view):
    for name in ("n10", "n9", "n2"):
        view["nodes"][name] = view["nodes"]["dgx1"]
    text = "\n".join(lines(view))
    assert text.index("n2 ") < text.index("n9 ") < text.index("n10 ")


def test_a_node_of_very_many_gpus_is_told_in_counts(view):
    view["nodes"]["rack"] = view["nodes"]["dgx1"] | {"gpus": "f" * 12 + "b" * 60}
    assert "12 of 72 free" in "\n".join(lines(view))


def test_other_users_jobs_are_only_busy(tmp_path):
    text = printed(Site(tmp_path), ALICE)
    assert "dgx1  #!!#!!!!".replace("  ", " ") in text.replace("  ", " ")
    assert "bob" not in text
    assert "another user's job comes first" in " ".join(text.split())
    assert "Waiting: 1 of 2" in text
    assert "bob" in printed(Site(tmp_path), None)


def test_what_users_write_is_no_command_to_the_terminal(tmp_path):
    slurm = played()
    slurm.jobs[1] = running(8, ALICE, {"dgx2": (0, 1)}, name=f"8\x1b]0;owned\x07{SCRIPT}")
    text = printed(Site(tmp_path, slurm), None)
    assert "\x1b]" not in text
    assert "\x07" not in text


def test_every_mark_is_told_from_the_others_without_colours():
    from slurm_plugin.tell.top.screen import GPUS

    marks = [mark for mark, _ in GPUS.values()]
    assert len(set(marks)) == len(marks)
    assert not set(marks) & set(LETTERS)
    assert len(set(COLOURS)) == len(COLOURS)


def test_no_two_jobs_have_one_letter_while_there_are_enough(view):
    for index in range(40):
        job = view["jobs"]["7"] | {"gpus": {f"n{index}": [0]}}
        view["jobs"][str(1000 + 51 * index)] = job
        view["nodes"][f"n{index}"] = view["nodes"]["dgx1"] | {"gpus": "b"}
    text = " ".join(lines(view, width=200, height=60))
    drawn = [text.split(f"n{index} ")[1].split()[0] for index in range(40)]
    assert len(set(drawn)) == 40


def runs(view, number, node, gpus):
    view["jobs"][str(number)] = view["jobs"]["8"] | {"gpus": {node: gpus}, "name": str(number)}


def test_a_job_keeps_its_letter_whoever_ends_or_comes(view):
    """All of these wish for the letter of job 7."""
    reader = Reader()
    for number in (7 + len(LETTERS), 7 + 2 * len(LETTERS)):
        runs(view, number, "dgx2", [number % 8])
    lines(view, place=reader)
    before = dict(reader.letters)
    assert len(set(before.values())) == len(before) == 4
    del view["jobs"]["7"]
    runs(view, 7 + 3 * len(LETTERS), "dgx1", [5])
    lines(view, place=reader)
    assert before.items() - {("7", before["7"])} <= reader.letters.items()
    assert len(set(reader.letters.values())) == 4


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (120, 40)])
def test_the_letters_of_the_shown_nodes_are_told_on_the_same_screen(view, width, height):
    """A hundred jobs wait below, so that the list of those that run is far away."""
    for index in range(100):
        view["jobs"][str(100 + index)] = view["jobs"]["9"] | {"name": str(100 + index)}
    for index in range(8):
        view["nodes"][f"n{index}"] = view["nodes"]["dgx1"] | {"gpus": "bbbbbbbb"}
        runs(view, 2000 + index, f"n{index}", [0, 1, 2, 3, 4, 5, 6, 7])
    reader = Reader()
    found = lines(view, width, height, reader)
    assert len(found) == height
    for number, letter in reader.letters.items():
        if any(letter * 8 in line for line in found):
            assert any(f"{letter} {number} " in line for line in found)
    assert any("2007" in line for line in found)


def test_more_letters_than_a_legend_holds_are_counted(view):
    for index in range(40):
        view["nodes"][f"n{index:02}"] = view["nodes"]["dgx1"] | {"gpus": "bb"}
        runs(view, 3000 + index, f"n{index:02}", [0, 1])
    found = lines(view, 80, 30)
    assert len(found) == 30
    assert any(line.rstrip().endswith(" more") and " and " in line for line in found)
