"""The counters of a run that had several hubs."""

from pathlib import Path

from zerowait.hub import StatsRecord
from zerowait.observe.report import Report, run_stats, traffic


def counted(hub, **stats):
    return StatsRecord(at=0.0, split="train", step=1, stats=stats, hub=hub)


def test_the_counters_of_one_hub_are_its_last_ones():
    assert run_stats([counted("a", asked=1), counted("a", asked=5)]) == {"asked": 5}
    assert run_stats([]) == {}


def test_what_the_hubs_of_a_resumed_run_did_and_spent_is_added_up():
    first = {
        "asked": 5,
        "spent_usd": 0.25,
        "abstentions": {"timeout": 2},
        "alarms": ["early"],
        "peak_in_flight": 60,
        "limit": 64,
    }
    second = {
        "asked": 3,
        "spent_usd": 0.5,
        "abstentions": {"refused": 1, "timeout": 1},
        "alarms": ["late"],
        "peak_in_flight": 40,
        "limit": 32,
    }
    total = run_stats([counted("a", asked=1), counted("a", **first), counted("b", **second)])
    assert (total["asked"], total["spent_usd"]) == (8, 0.75)
    assert total["abstentions"] == {"refused": 1, "timeout": 3}
    assert total["alarms"] == ["early", "late"]
    assert (total["peak_in_flight"], total["limit"]) == (60, 32)


def test_each_judge_and_component_counts_what_all_hubs_of_the_run_asked():
    """A run that was restarted with another reward.yaml may have lost a judge."""
    judged = {"asked": 32, "spent_usd": 0.5}
    first = {"judges": {"old": judged, "kept": judged}, "components": {"quality": judged}}
    second = {
        "judges": {"kept": {"asked": 8, "spent_usd": 0.25}},
        "components": {"quality": {"asked": 8, "spent_usd": 0.25}},
    }
    total = run_stats([counted("a", **first), counted("b", **second)])
    both = {"asked": 40, "spent_usd": 0.75}
    assert total["judges"] == {"old": judged, "kept": both}
    assert total["components"] == {"quality": both}


def test_the_drift_alarms_of_all_hubs_are_told_with_the_latest_drift():
    drift = {"mean_abs": 0.2}
    first = {"measurements": 2, "alarms": 1, "since_first": drift, "from_reference": None}
    second = {"measurements": 1, "alarms": 0, "since_first": None, "from_reference": None}
    hubs = [counted("a", anchors={"judge": first}), counted("b", anchors={"judge": second})]
    anchors = run_stats(hubs)["anchors"]["judge"]
    assert (anchors["measurements"], anchors["alarms"]) == (3, 1)
    assert anchors["since_first"] == drift


def test_counters_that_cannot_be_read_are_shown_as_unknown_and_not_as_0():
    """The file is lost or damaged: what the judges were asked is in no other line of the table."""
    report = Report(folder=Path("run"), training=[], validation=[], stats={})
    assert ("counters", "none can be read") in traffic(report)
    assert "0" not in [value for _, value in traffic(report)]
