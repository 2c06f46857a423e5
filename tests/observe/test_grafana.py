"""The Grafana dashboard of the docs asks only for what /metrics really has."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from zerowait.engine import AnchorStats, Stats
from zerowait.engine.monitor.prometheus import exposition
from zerowait.events import Drift

DASHBOARD = Path(__file__).parents[2] / "docs/assets/grafana.json"
PANELS = json.loads(DASHBOARD.read_text())["panels"]
DRIFT = Drift(anchors=3, mean_abs=0.1, rank_correlation=None, flips=0)


def exported():
    """By metric, the labels of its samples, of statistics in which everything has happened."""
    stats = Stats(
        abstentions={"timeout": 1},
        anchors={"q": AnchorStats(alarms=1, since_first=DRIFT, from_reference=DRIFT)},
    )
    families = text_string_to_metric_families(exposition(stats))
    samples = [sample for family in families for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_query_is_of_a_metric_with_the_labels_that_it_names(panel):
    known = exported()
    for target in panel["targets"]:
        expr = target["expr"].replace("${prefix}", "zerowait")
        asked = re.findall(r"zerowait_\w+", expr)
        assert asked
        assert set(asked) <= set(known), expr
        labels = {name for each in re.findall(r"by \(([^)]*)\)", expr) for name in each.split(", ")}
        labels |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        for metric in asked:
            assert labels <= known[metric], expr
        counters = [metric for metric in asked if metric.endswith("_total")]
        rated = re.findall(r"rate\((zerowait_\w+)", expr)
        assert set(rated) <= set(counters), expr


def test_no_metric_is_left_out_of_the_dashboard():
    drawn = {
        name
        for panel in PANELS
        for target in panel["targets"]
        for name in re.findall(r"{prefix}(_\w+)", target["expr"])
    }
    assert {f"zerowait{name}" for name in drawn} == set(exported())
