"""What a run did altogether, when it had several hubs."""

from zerowait.hub import StatsRecord
from zerowait.observe.hubs import all_hubs


def counted(hub, **stats):
    return StatsRecord(at=0.0, split="train", step=1, stats=stats, hub=hub)


def test_the_counters_of_one_hub_are_its_last_ones():
    assert all_hubs([counted("a", asked=1), counted("a", asked=5)]) == {"asked": 5}
    assert all_hubs([]) == {}


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
    whole = all_hubs([counted("a", asked=1), counted("a", **first), counted("b", **second)])
    assert (whole["asked"], whole["spent_usd"]) == (8, 0.75)
    assert whole["abstentions"] == {"refused": 1, "timeout": 3}
    assert whole["alarms"] == ["early", "late"]
    assert (whole["peak_in_flight"], whole["limit"]) == (60, 32)
