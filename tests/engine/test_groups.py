import asyncio

import pytest

from zerowait.engine.groups.prompt_groups import STREAM, Group, Groups
from zerowait.errors import DataError
from zerowait.testing import virtually
from zerowait.types import Abstain, Sample

ROW, OTHER = Sample("q", "a", group="g"), Sample("q", "b", group="g")


def test_a_group_is_whole_when_its_last_member_has_come():
    async def scenario():
        group = Group(2)
        group.join(ROW)
        waiting = asyncio.create_task(group.whole(scores=False, deadline_s=10))
        await asyncio.sleep(3)
        assert not waiting.done()
        group.join(ROW)
        return await waiting

    result, elapsed_s = virtually(scenario())
    assert result is None
    assert elapsed_s == 3


def test_a_sibling_that_never_comes_abstains_the_shape_at_its_deadline():
    async def scenario():
        group = Group(3)
        group.join(ROW)
        return await group.whole(scores=False, deadline_s=30)

    result, elapsed_s = virtually(scenario())
    assert isinstance(result, Abstain)
    assert "1 of 3" in result.detail
    assert elapsed_s == 30


def test_a_group_that_needs_scores_waits_until_everybody_is_judged():
    async def scenario():
        group = Group(2)
        first, second = group.join(ROW), group.join(ROW)
        group.judged(first, 1.0)
        waiting = asyncio.create_task(group.whole(scores=True, deadline_s=10))
        await asyncio.sleep(1)
        assert not waiting.done()
        group.judged(second, None)
        return await waiting

    assert virtually(scenario())[0] is None


@pytest.mark.parametrize("scores", [False, True])
def test_a_sibling_that_is_known_not_to_come_is_not_waited_for(scores):
    async def scenario():
        groups = Groups("style")
        seats = [groups.enter(STREAM, row, 4) for row in (ROW, OTHER)]
        for group, member in seats:
            group.judged(member, 1.0)
        waiting = asyncio.create_task(seats[0].group.whole(scores=scores, deadline_s=600))
        await asyncio.sleep(3)
        groups.expect("g", 3)
        await asyncio.sleep(1)
        assert not waiting.done()
        groups.expect("g", 2)
        whole = await waiting
        for seat in seats:
            groups.leave(STREAM, seat, finished=True)
        return whole, len(groups)

    assert virtually(scenario()) == ((None, 0), 4)


def test_a_group_is_never_told_to_be_smaller_than_it_is_and_forgotten_when_all_have_left():
    groups = Groups("style")
    seats = [groups.enter(STREAM, row, 4) for row in (ROW, OTHER)]
    groups.expect("g", 1)
    assert seats[0].group.size == 2
    for seat in seats:
        groups.leave(STREAM, seat, finished=True)
    assert len(groups) == 0
    late = groups.enter(STREAM, ROW, 3)
    groups.leave(STREAM, late, finished=True)
    groups.expect("g", 1)
    assert len(groups) == 0


def test_a_row_that_comes_again_after_its_group_became_smaller_gets_its_old_place():
    groups = Groups("style")
    lost, _ = groups.enter(STREAM, ROW, 3), groups.enter(STREAM, OTHER, 3)
    groups.expect("g", 2)
    groups.leave(STREAM, lost, finished=False)
    assert groups.enter(STREAM, ROW, 3) == lost


def test_more_members_than_announced_are_refused():
    groups = Groups("style")
    groups.enter("s", ROW, 1)
    with pytest.raises(DataError, match="must be unique"):
        groups.enter("s", ROW, 1)


def test_two_calls_that_score_the_same_rows_do_not_meet():
    groups = Groups("style")
    one, _ = groups.enter("a", ROW, 1)
    two, _ = groups.enter("b", ROW, 1)
    assert one is not two


def test_a_group_is_forgotten_when_all_have_left():
    groups = Groups("style")
    seats = [groups.enter("s", ROW, 2) for _ in range(2)]
    groups.leave("s", seats[0], finished=True)
    assert len(groups) == 1
    groups.leave("s", seats[1], finished=True)
    assert len(groups) == 0


def test_a_row_that_was_given_up_and_is_handed_in_again_gets_its_old_place():
    """As when a trainer's process loses its session at the hub while its siblings wait."""
    groups = Groups("style")
    lost, _ = groups.enter("s", ROW, 2), groups.enter("s", OTHER, 2)
    groups.leave("s", lost, finished=False)
    assert groups.enter("s", ROW, 2) == lost
    with pytest.raises(DataError, match="must be unique"):
        groups.enter("s", ROW, 2)


def test_a_twin_of_a_row_that_is_done_gets_a_place_of_its_own():
    groups = Groups("style")
    done = groups.enter("s", ROW, 2)
    groups.leave("s", done, finished=True)
    assert groups.enter("s", ROW, 2).member is not done.member


def test_a_group_whose_siblings_never_came_is_forgotten_too():
    async def scenario():
        groups = Groups("style")
        seat = groups.enter("s", ROW, 5)
        await seat.group.whole(scores=False, deadline_s=1)
        groups.leave("s", seat, finished=True)
        return len(groups)

    assert virtually(scenario())[0] == 0
