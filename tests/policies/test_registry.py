"""Registering policies, ours and others'."""

from __future__ import annotations

import logging

import pytest

from policies import Policy
from policies.errors import RegistryError
from policies.first_fit import FirstFit
from policies.registry import DEFAULT, Registry, built_in


class _Entry:
    """An entry point: what importlib.metadata hands out, as far as it is used."""

    def __init__(self, name, loads):
        self.name, self.value, self._loads = name, f"{name}_module:Policy", loads

    def load(self):
        if isinstance(self._loads, Exception):
            raise self._loads
        return self._loads


class _Mine:
    name = "mine"
    hints = frozenset({"profile"})

    def place(self, request, cluster):
        raise NotImplementedError


def test_our_policies_are_there_and_the_default_is_one_of_them():
    assert {"mapa", "first-fit", "best-fit"} <= set(built_in().names())
    assert DEFAULT in built_in().names()
    assert all(isinstance(built_in().get(name), Policy) for name in built_in().names())
    assert all(built_in().get(name).name == name for name in built_in().names())


def test_a_name_is_registered_once():
    registry = built_in()
    with pytest.raises(RegistryError, match="'first-fit' is registered already"):
        registry.register(FirstFit())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(RegistryError, match="no policy named 'x': expected one of first-fit"):
        Registry([FirstFit()]).get("x")


@pytest.mark.parametrize("loaded", [_Mine, _Mine()], ids=["a class", "an instance"])
def test_a_third_partys_policy_is_added(loaded):
    registry = built_in()
    assert registry.load_plugins([_Entry("mine", loaded)]) == ("mine",)
    assert registry.get("mine").name == "mine"
    assert registry.hints_of("mine") == {"profile"}


@pytest.mark.parametrize(
    "loads",
    [ImportError("no module named foo"), object(), FirstFit, ValueError("at import")],
    ids=["cannot be imported", "is no policy", "takes a name of ours", "fails at import"],
)
def test_a_broken_plugin_is_logged_and_skipped(loads, caplog):
    registry = built_in()
    with caplog.at_level(logging.WARNING):
        added = registry.load_plugins([_Entry("broken", loads), _Entry("mine", _Mine)])
    assert added == ("mine",)
    assert "broken" in caplog.text
    assert "skipped" in caplog.text


def test_without_plugins_nothing_is_added():
    registry = built_in()
    before = registry.names()
    registry.load_plugins([])
    assert registry.names() == before
