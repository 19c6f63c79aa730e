"""Boxes: drawn where all five values are there, of classes that have a rule, names stay text."""

import re
from xml.etree import ElementTree

from gres_topology.pictures import theme
from papers.reproduction.boxes import boxes

HOSTILE = '<script>&"\x00'


def test_a_box_is_of_five_values_and_its_names_stay_text():
    fives = [[1, 2, 3, 4, 5], [2, 3, None, 5, 6]]
    svg = boxes("t", ["a", HOSTILE], {HOSTILE: fives}).svg()
    ElementTree.fromstring(svg)
    assert "<script" not in svg
    # One has no median; the other picture is the legend's sample.
    assert svg.count('<rect class="gt-job0"') == 2
    used = set(re.findall(r'class="gt-([\w-]+)"', svg))
    assert {name for name in used if f".gt-{name}{{" not in theme.css()} == set()
