"""The counters of a run that had several hubs."""

from zerowait.hub import StatsRecord
from zerowait.observe.report import run_stats


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
