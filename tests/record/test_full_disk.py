"""A disk that is full: whose reward could not be recorded gets an error, and the counters say so."""

import asyncio
import json
import os
import resource
import subprocess
from contextlib import contextmanager, suppress

import pytest

import zerowait
from zerowait.hub import JobHub
from zerowait.record import read_rewards
from zerowait.types import Sample

MORE_THAN_A_BLOCK = "word " * 2_000


class SmallDisk:
    """A folder that can be filled: a file system of its own, where root may mount one."""

    def __init__(self, folder):
        self.folder = folder
        options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        done = subprocess.run(["mount", *options], check=False, capture_output=True)
        self.is_mounted = done.returncode == 0

    def close(self):
        if self.is_mounted:
            subprocess.run(["umount", self.folder], check=True)

    @contextmanager
    def full(self):
        """No block is free; or files of this process cannot grow, which fails the same way."""
        if not self.is_mounted:
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
            yield
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            return
        filler = self.folder / "filler"
        with filler.open("wb") as file, suppress(OSError):
            while True:
                os.write(file.fileno(), b"x" * 4096)
        yield
        filler.unlink()


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    small = SmallDisk(folder)
    try:
        yield small
    finally:
        small.close()


CONFIG = {"components": {"answer": {"scorer": "qa_em"}}, "cache": "off"}


def rows(count, *, gold="0", **given):
    """Without a gold answer they abstain."""
    return [Sample("q", f"{n} {MORE_THAN_A_BLOCK}", gold, id=f"{n}", **given) for n in range(count)]


def counted(stats):
    assert stats.submitted == stats.settled + stats.given_up
    return stats.settled, stats.given_up, stats.abstained


def test_a_reward_that_could_not_be_recorded_counts_as_given_up(disk):
    """Its caller gets the error; what is scored when there is room again is settled."""
    run = disk.folder / "run"
    with zerowait.open(CONFIG, record=run) as rewards:
        rewards.score(rows(3))
        with disk.full():
            futures = [rewards.submit(row) for row in [*rows(2), *rows(2, gold=None)]]
            for future in futures:
                with pytest.raises(OSError, match=r"rewards\.jsonl"):
                    future.result(timeout=60)
            assert counted(rewards.stats()) == (3, 4, 0)
        assert rewards.submit(rows(1, gold=None)[0]).result(timeout=60).value is None
        assert counted(rewards.stats()) == (4, 4, 1)
    assert len(list(read_rewards(run))) == 4
    last = json.loads((run / "stats.jsonl").read_bytes().splitlines()[-1])["stats"]
    assert (last["submitted"], last["settled"], last["given_up"]) == (8, 4, 4)


@pytest.mark.parametrize("on_failure", ["neutral", "drop_group"])
def test_of_a_batch_that_meets_a_full_disk_no_row_counts_as_settled(disk, on_failure):
    """Under ``drop_group`` some wait for the rest of their group, which is not scored any more."""
    config = CONFIG | {"on_failure": on_failure}
    with zerowait.open(config, record=disk.folder / "run") as rewards:
        with disk.full(), pytest.raises(OSError, match=r"rewards\.jsonl"):
            rewards.score(rows(500, group="a", group_size=500) + rows(500, gold=None))
        settled, given_up, abstained = counted(rewards.stats())
        assert (settled, abstained) == (0, 0)
        assert given_up >= 1
        rewards.score(rows(2))
        assert counted(rewards.stats()) == (2, given_up, 0)


def test_a_hub_that_meets_a_full_disk_counts_likewise(disk):
    async def scenario():
        async with JobHub(CONFIG, record=disk.folder / "run") as hub:
            with disk.full():
                streamed, ticket = rows(2)
                with pytest.raises(OSError, match=r"rewards\.jsonl"):
                    await hub.reward(streamed)
                with pytest.raises(OSError, match=r"rewards\.jsonl"):
                    await hub.redeem(ticket)
                with pytest.raises(OSError, match=r"rewards\.jsonl"):
                    async for _ in hub.score_each(rows(3)):
                        pass
                full = counted(await hub.stats())
            await hub.reward(rows(1)[0])
            return full, counted(await hub.stats())

    full, after = asyncio.run(scenario())
    assert (full[0], after[0]) == (0, 1)
    assert after[1] == full[1] >= 3
