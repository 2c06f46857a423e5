"""Regular expressions that are compiled at their first use."""

import copy
import re
from importlib import import_module
from pkgutil import walk_packages

import pytest

import zerowait.judge
import zerowait.scorers
from zerowait.attribution import RULES
from zerowait.patterns import lazy_pattern

LAZY = type(lazy_pattern(""))


def lazy_ones():
    """Those that modules give a name, and those in the table of what errors mean."""
    names = ["zerowait.attribution"]
    for package in (zerowait.judge, zerowait.scorers):
        names += [each.name for each in walk_packages(package.__path__, f"{package.__name__}.")]
    for name in names:
        values = vars(import_module(name)).values()
        yield from (value for value in values if isinstance(value, LAZY))
    for rule in RULES:
        yield from (rule.says, *filter(None, [rule.unless]))


def test_a_lazy_pattern_does_what_the_compiled_one_does():
    ours, theirs = (kind(r"(?P<n>\d)x", re.IGNORECASE) for kind in (lazy_pattern, re.compile))
    for _ in range(2):
        assert ours.search("a 7X")["n"] == theirs.search("a 7X")["n"] == "7"
        assert ours.sub(r"<\g<n>>", "7x") == theirs.sub(r"<\g<n>>", "7x") == "<7>"
    assert (ours.pattern, ours.flags) == (theirs.pattern, theirs.flags)
    assert dict(ours.groupindex) == {"n": 1}
    assert copy.deepcopy(ours).match("1x")
    assert not hasattr(ours, "serach")


def test_a_mistake_in_a_pattern_shows_at_its_first_use():
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_every_pattern_compiles():
    found = list(lazy_ones())
    assert len(found) > 150
    for each in found:
        each.search("")
