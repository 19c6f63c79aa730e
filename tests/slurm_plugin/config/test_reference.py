"""Docs, JSON Schema and reader come of the same declarations; what one shows, another takes."""

import json
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from commands_in_tests import run

from slurm_plugin.config import reference
from slurm_plugin.config.key import keys_of
from slurm_plugin.config.settings import load_policies
from slurm_plugin.config.site_reader import SiteReader
from slurm_plugin.config.yaml_reader import YamlReader
from slurm_plugin.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
FILE = Path("/etc/slurm/gputopo.yaml")
SECTIONS = dict(reference.sections())
KEYS = [
    pytest.param(key, id=f"{title}.{key.name}")
    for title, cls in SECTIONS.items()
    for key in keys_of(cls)
    # A pattern is a file, which test_pattern_files reads.
    if key.kind != "patterns" and not (key.section and keys_of(key.section))
]


def test_the_page_lists_every_key_as_gputopo_config_keys_does():
    page = (ROOT / "docs" / "configuration.md").read_text()
    begin, end = "<!-- reference -->\n", "<!-- /reference -->"
    written = page[page.index(begin) + len(begin) : page.index(end)]
    assert written == run("config", "keys")


@pytest.mark.parametrize("key", KEYS)
def test_each_keys_default_or_example_is_read(key):
    """And the default as it is shown is the default."""
    shown = reference.default(key).strip("`")
    text = (shown if shown != "required" else "") or key.example or ", ".join(key.choices[:1])
    assert text, "declare an example"
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    found = SiteReader(FILE).kinds()[key.kind](node, key.name, key)
    assert text != shown or key.default in (found, MISSING)


def test_the_schema_knows_every_key_and_no_other():
    schema = json.loads(run("config", "schema"))
    assert schema["properties"].keys() == {key.name for key in keys_of(load_policies())}
    assert schema["additionalProperties"] is False
    inner = schema["properties"]
    assert inner["enforcement"]["enum"] == ["select", "slots"]
    assert inner["deadline_ms"]["maximum"] == 10_000
    assert inner["slots"]["properties"]["lease_s"]["default"] == 120
    assert inner["nodes"]["items"]["required"] == ["topology"]
    rule = inner["partitions"]["additionalProperties"]
    assert rule["properties"]["mode"]["enum"] == ["off", "observe", "enforce"]
    shaped = inner["genie"]["properties"]["partitions"]["additionalProperties"]
    assert "default" not in shaped["properties"]["late"]


@dataclass(frozen=True, slots=True)
class Weights:
    """As a policy would write it."""

    order: Literal["near", "far"] = field(metadata={"about": "Which first."})
    distance: float = field(default=1.0, metadata={"about": "Weight of distance.", "high": 10})
    line: int = 0

    def conflict(self) -> tuple[str, str] | None:
        return None if self.distance else ("distance", "0 is no weight; expected more")


def weights(text: str) -> Weights:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return YamlReader(FILE).settings(Weights, node, "mine")


def test_a_class_that_a_policy_declares_is_read_like_ours():
    assert weights("{order: far}") == Weights("far", line=1)
    assert weights("\norder: near\ndistance: 2.5") == Weights("near", 2.5, line=2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{distance: 1}", "1: mine.order: missing; Which first."),
        ("{order: up}", "1: mine.order: 'up' is not one of near, far"),
        ("order: far\ndistance: 11", "2: mine.distance: 11 is out of range; expected number from"),
        ("order: far\ndistance: 0", "1: mine.distance: 0 is no weight; expected more"),
        ("{order: far, colour: red}", "1: mine.colour: unknown key; allowed: order, distance"),
    ],
)
def test_and_refused_like_ours(text, says):
    with pytest.raises(ConfigError) as caught:
        weights(text)
    assert says in str(caught.value)


def test_a_declaration_that_says_too_much_or_too_little_is_refused():
    @dataclass(frozen=True)
    class Unknown:
        size: int = field(default=1, metadata={"about": "Size.", "hihg": 3})

    @dataclass(frozen=True)
    class NoKind:
        size: Any = field(default=1, metadata={"about": "Size."})

    with pytest.raises(TypeError, match="hihg"):
        keys_of(Unknown)
    with pytest.raises(KeyError):
        keys_of(NoKind)
