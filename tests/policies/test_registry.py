"""Registering policies, ours and others'."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from policies import Policy
from policies.contract.hint_keys import PROFILE, HintKey, count
from policies.contract.settings import setting
from policies.errors import HintError, RegistryError
from policies.first_fit import FirstFit
from policies.hints import parse
from policies.registry import DEFAULT, OURS, Registry


class _Entry:
    """An entry point: what importlib.metadata hands out, as far as it is used."""

    def __init__(self, name, loads):
        self.name, self.value, self._loads = name, f"{name}_module:Policy", loads

    def load(self):
        if isinstance(self._loads, Exception):
            raise self._loads
        return self._loads


@dataclass(frozen=True)
class _Settings:
    most: int = setting(4, "Most GPUs of a job.", low=1, high=8)


class _Mine(Policy):
    name = "mine"
    hints = (PROFILE, HintKey("age", *count(9), "1", "how old it is"))
    settings = _Settings

    def __init__(self, settings):
        self.most = settings.most

    @classmethod
    def build(cls, settings, site):
        return cls(settings)

    def place(self, request, cluster):
        raise NotImplementedError


def declared(**attributes):
    """A policy that says something else in one place."""
    return type("_Other", (_Mine,), {"name": "other", **attributes})


def test_our_policies_are_there_and_the_default_is_one_of_them():
    registry = Registry(OURS)
    assert {"mapa", "first-fit", "best-fit", DEFAULT} <= set(registry.names())
    assert all(registry.get(name).name == name for name in registry.names())


def test_a_name_is_registered_once():
    with pytest.raises(RegistryError, match="'first-fit' is registered already"):
        Registry(OURS).register(FirstFit)


def test_an_unknown_name_lists_the_known_ones():
    registry = Registry([FirstFit])
    for ask in (registry.get, registry.hints_of, registry.declared):
        with pytest.raises(RegistryError, match="no policy named 'x': expected one of first-fit"):
            ask("x")


def test_a_third_partys_policy_is_added_with_its_hints_and_settings():
    registry = Registry(OURS)
    assert registry.load_plugins([_Entry("mine", _Mine)]) == ("mine",)
    assert registry.hints_of("mine") == {"profile", "age"}
    assert (registry.get("mine").most, registry.sections["mine"]) == (4, _Settings)
    assert registry.build("mine", {"mine": _Settings(7)}).most == 7
    assert str(parse("age=07,policy=mine", registry)) == "policy=mine,age=7"
    with pytest.raises(HintError, match="age: '10'; expected a whole number from 1 to 9"):
        parse("policy=mine,age=10", registry)


@pytest.mark.parametrize(
    "loads",
    [
        ImportError("no module named foo"),
        object(),
        FirstFit,
        ValueError("at import"),
        declared(name="other policy"),
        declared(hints=(HintKey("profile", *count(9), "1", "another meaning"),)),
        declared(section="topo_aware"),
    ],
    ids=[
        *("cannot be imported", "is no policy", "takes a name of ours", "fails at import"),
        *("no name a hint could hold", "gives a hint key of ours another meaning"),
        "takes another policy's section",
    ],
)
def test_a_broken_plugin_is_logged_and_skipped(loads, caplog):
    registry = Registry(OURS)
    with caplog.at_level(logging.WARNING):
        entries = [_Entry("broken", loads), _Entry("mine", _Mine)]
        assert registry.load_plugins(entries) == ("mine",)
    assert registry.names() == (*Registry(OURS).names(), "mine")
    assert "broken" in caplog.text
    assert "skipped" in caplog.text
