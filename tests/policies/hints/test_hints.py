"""The hint grammar: what is read, what is refused, and in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import Cluster, Placement, Policy, Request
from policies.contract.hint_keys import ITERATIONS, KEYS
from policies.errors import HintError
from policies.hints import MAX_BYTES, Hints, parse, policy_of, supported_keys, to_request
from policies.registry import OURS, Registry

READ = [
    ("nothing asks for nothing", "", ""),
    ("off opts out", " off ", "off"),
    ("keys come out in one order", "pattern=tree,policy=mapa", "policy=mapa,pattern=tree"),
    ("blanks around items do not matter", " pattern = tree , sensitive=no", None),
    ("numbers lose their trailing zeros", "min-utility=0.50", "min-utility=0.5"),
    ("a flag may stand alone", "spread", "spread=yes"),
]


@pytest.mark.parametrize(("text", "canonical"), [pytest.param(*row[1:], id=row[0]) for row in READ])
def test_read(text, canonical):
    hints = parse(text)
    if canonical is not None:
        assert str(hints) == canonical
    assert parse(str(hints)) == hints


REFUSED = [
    ("an unknown key", "foo=1", r"unknown key 'foo'; expected one of policy, pattern, "),
    ("an unknown pattern", "pattern=sphere", r"pattern: 'sphere'; expected ring, tree, chain"),
    ("no value", "pattern", r"pattern: no value; expected ring"),
    ("an empty value", "pattern=", r"pattern: ''; expected ring"),
    ("a number out of range", "min-utility=1.5", r"min-utility: '1.5'; expected a number from 0"),
    ("not a number", "min-utility=nan", r"min-utility: 'nan'"),
    ("a word for yes or no", "sensitive=maybe", r"sensitive: 'maybe'; expected yes, no"),
    ("a key given twice", "pattern=ring,pattern=ring", r"pattern: given twice"),
    ("pack with spread", "pack,spread", r"spread: cannot go with pack"),
    ("off beside others", "off,pattern=ring", r"off: stands alone"),
    ("an unknown policy", "policy=magic", r"policy: 'magic'; expected one of mapa"),
    ("a key without its value", "remote", r"remote: no value; expected allow, auto, no"),
    ("a key of another policy", "class=prior", r"class: has no effect with policy horizon"),
    ("a profile nobody reads", "policy=mapa,profile=md", r"profile: has no effect with policy"),
    ("a key the policy ignores", "policy=first-fit,pattern=ring", r"pattern: has no effect with"),
    ("an empty item", "pattern=ring,", r"unknown key ''"),
    ("a control character", "pattern=ring\x1b[2J", r"character U\+001B"),
    ("a new line", "pattern=ring\npolicy=mapa", r"character U\+000A"),
    ("a letter that is not ASCII", "pattern=ríng", r"character U\+00ED"),
    ("a long one", "x" * 2000, r"hint of 2000 bytes; expected at most 1024"),
]


@pytest.mark.parametrize(("text", "message"), [pytest.param(*r[1:], id=r[0]) for r in REFUSED])
def test_refused(text, message):
    with pytest.raises(HintError, match=message) as error:
        parse(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("word", ["auto", "allow"])
def test_a_profile_goes_beside_remote_under_every_policy(word):
    assert str(parse(f"remote={word},profile=md")) == f"profile=md,remote={word}"


def _read_or_refused(text: str) -> Hints | HintError:
    try:
        return parse(text)
    except HintError as error:
        return error


@given(st.text(max_size=MAX_BYTES + 10))
def test_any_text_is_read_or_refused_in_one_printable_line(text):
    answer = _read_or_refused(text)
    assert str(answer).isprintable()
    if isinstance(answer, Hints):
        assert parse(str(answer)) == answer


@given(st.sets(st.sampled_from(["pattern=ring", "sensitive=no", "spread", "min-utility=0.5"])))
def test_the_order_of_items_does_not_matter(items):
    hints = parse(",".join(sorted(items)))
    assert parse(",".join(sorted(items, reverse=True))) == hints
    assert parse(str(hints)) == hints
    assert len(hints.values) == len(items)


def test_a_key_works_as_soon_as_a_policy_declares_it():
    """Which keys have an effect is the policies' to say, not the grammar's."""

    class Other(Policy):
        name = "other"
        hints = (ITERATIONS,)

        def place(self, request: Request, cluster: Cluster) -> Placement:
            raise NotImplementedError

    without = [policy for policy in OURS if policy.name != "genie"]
    with pytest.raises(HintError, match="iterations: not supported by the installed policies"):
        parse("iterations=5", Registry(without))
    assert "iterations" not in supported_keys(Registry(without))
    policies = Registry([*without, Other])
    assert parse("policy=other,iterations=5", policies).values["iterations"] == "5"
    with pytest.raises(HintError, match="iterations: has no effect with policy horizon; exp"):
        parse("iterations=5", policies)
    assert "iterations" in supported_keys(policies)


def test_every_key_has_what_the_reference_needs():
    assert all(key.doc and key.allowed and key.default for key in KEYS.values())
    assert {"policy", "pattern", "remote", "deadline", "memory-bandwidth"} <= set(KEYS)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("deadline", "1d12h", "soon"),
        ("iterations", "1000", "0"),
        ("class", "urgent", "gold"),
        ("task", "inference", "sleep"),
        ("memory-bandwidth", "25.5", "-1"),
        ("profile", "vgg16.b4", "../etc"),
        ("single-node", "yes", "1"),
    ],
)
def test_keys_of_policies_to_come_already_know_their_values(key, good, bad):
    assert KEYS[key].read(good) == good
    assert KEYS[key].read(bad) is None


def test_a_request_takes_the_hint_over_the_site_over_the_default():
    site = {"policy": "mapa", "pattern": "tree", "sensitive": "no"}
    request = to_request(parse("pattern=star"), (2, 4), site, job_id=7)
    assert request == Request((4, 2), job_id=7, pattern="star", sensitive=False)
    assert to_request(Hints(), (2,)) == Request((2,))


def test_site_defaults_without_effect_under_the_users_policy_are_left_out():
    request = to_request(parse("policy=first-fit"), (2,), {"pattern": "tree"})
    assert request.pattern == "ring"


def test_a_wrong_site_default_is_named():
    with pytest.raises(HintError, match="pattern: 'sphere'"):
        to_request(Hints(), (2,), {"pattern": "sphere"})
    with pytest.raises(HintError, match="policy: no policy named 'magic'"):
        to_request(Hints(), (2,), {"policy": "magic"})


def test_options_carry_what_is_no_field_of_a_request():
    assert to_request(parse("spread,min-utility=0.5"), (2,)).options == {"spread": "yes"}


def test_who_decides():
    assert policy_of(Hints()) == "horizon"
    assert policy_of(Hints(), {"policy": "best-fit"}) == "best-fit"
    assert policy_of(parse("policy=first-fit"), {"policy": "best-fit"}) == "first-fit"
