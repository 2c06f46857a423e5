import asyncio

import pytest

from zerowait.engine.groups.prompt_groups import STREAM, PromptGroup, PromptGroups
from zerowait.errors import DataError
from zerowait.testing import virtually
from zerowait.types import Abstain, Sample

ROW, OTHER = Sample("q", "a", group="g"), Sample("q", "b", group="g")


def test_a_group_is_complete_when_its_last_member_has_come():
    async def scenario():
        group = PromptGroup(2)
        group.join(ROW)
        waiting = asyncio.create_task(group.wait_complete(scores=False, deadline_s=10))
        await asyncio.sleep(3)
        assert not waiting.done()
        group.join(ROW)
        return await waiting

    result, elapsed_s = virtually(scenario())
    assert result is None
    assert elapsed_s == 3


def test_a_sibling_that_never_comes_abstains_the_shape_at_its_deadline():
    async def scenario():
        group = PromptGroup(3)
        group.join(ROW)
        return await group.wait_complete(scores=False, deadline_s=30)

    result, elapsed_s = virtually(scenario())
    assert isinstance(result, Abstain)
    assert "1 of 3" in result.detail
    assert elapsed_s == 30


def test_a_group_that_needs_scores_waits_until_all_members_are_scored():
    async def scenario():
        group = PromptGroup(2)
        first, second = group.join(ROW), group.join(ROW)
        group.set_rules_known(first, 1.0)
        waiting = asyncio.create_task(group.wait_complete(scores=True, deadline_s=10))
        await asyncio.sleep(1)
        assert not waiting.done()
        group.set_rules_known(second, None)
        return await waiting

    assert virtually(scenario())[0] is None


@pytest.mark.parametrize("scores", [False, True])
def test_a_sibling_that_is_known_not_to_come_is_not_waited_for(scores):
    async def scenario():
        groups = PromptGroups("style")
        members = [groups.join(STREAM, row, 4) for row in (ROW, OTHER)]
        for member in members:
            member.group.set_rules_known(member, 1.0)
        waiting = asyncio.create_task(members[0].group.wait_complete(scores=scores, deadline_s=600))
        await asyncio.sleep(3)
        groups.shrink("g", 3)
        await asyncio.sleep(1)
        assert not waiting.done()
        groups.shrink("g", 2)
        complete = await waiting
        for member in members:
            groups.leave(STREAM, member, finished=True)
        return complete, len(groups)

    assert virtually(scenario()) == ((None, 0), 4)


def test_a_group_is_never_told_to_be_smaller_than_it_is_and_forgotten_when_all_have_left():
    groups = PromptGroups("style")
    members = [groups.join(STREAM, row, 4) for row in (ROW, OTHER)]
    groups.shrink("g", 1)
    assert members[0].group.size == 2
    for member in members:
        groups.leave(STREAM, member, finished=True)
    assert len(groups) == 0
    late = groups.join(STREAM, ROW, 3)
    groups.leave(STREAM, late, finished=True)
    groups.shrink("g", 1)
    assert len(groups) == 0


def test_a_row_that_comes_again_after_its_group_became_smaller_is_its_old_member():
    groups = PromptGroups("style")
    lost, _ = groups.join(STREAM, ROW, 3), groups.join(STREAM, OTHER, 3)
    groups.shrink("g", 2)
    groups.leave(STREAM, lost, finished=False)
    assert groups.join(STREAM, ROW, 3) == lost


def test_more_members_than_announced_are_refused():
    groups = PromptGroups("style")
    groups.join("s", ROW, 1)
    with pytest.raises(DataError, match="must be unique"):
        groups.join("s", ROW, 1)


def test_two_calls_that_score_the_same_rows_share_no_group():
    groups = PromptGroups("style")
    one = groups.join("a", ROW, 1)
    two = groups.join("b", ROW, 1)
    assert one.group is not two.group


def test_a_group_is_forgotten_when_all_have_left():
    groups = PromptGroups("style")
    members = [groups.join("s", ROW, 2) for _ in range(2)]
    groups.leave("s", members[0], finished=True)
    assert len(groups) == 1
    groups.leave("s", members[1], finished=True)
    assert len(groups) == 0


def test_a_row_that_was_given_up_and_is_handed_in_again_is_its_old_member():
    """As when a trainer's process loses its session at the hub while its siblings wait."""
    groups = PromptGroups("style")
    lost, _ = groups.join("s", ROW, 2), groups.join("s", OTHER, 2)
    groups.leave("s", lost, finished=False)
    assert groups.join("s", ROW, 2) == lost
    with pytest.raises(DataError, match="must be unique"):
        groups.join("s", ROW, 2)


def test_a_twin_of_a_row_that_is_done_is_a_member_of_its_own():
    groups = PromptGroups("style")
    done = groups.join("s", ROW, 2)
    groups.leave("s", done, finished=True)
    assert groups.join("s", ROW, 2) is not done


def test_a_group_whose_siblings_never_came_is_forgotten_too():
    async def scenario():
        groups = PromptGroups("style")
        member = groups.join("s", ROW, 5)
        await member.group.wait_complete(scores=False, deadline_s=1)
        groups.leave("s", member, finished=True)
        return len(groups)

    assert virtually(scenario())[0] == 0
