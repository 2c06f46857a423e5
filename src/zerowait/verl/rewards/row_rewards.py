"""The rewards of verl's rows: which ticket each row holds, and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from zerowait.errors import ConfigError, JudgementError
from zerowait.hub.tickets import ticket_of
from zerowait.types import FailureKind, Reward, Sample
from zerowait.verl.rewards.advantage import write_scores
from zerowait.verl.rewards.agent_loop_rewards import check_own
from zerowait.verl.rewards.group_completion import ended
from zerowait.verl.rewards.metrics import episode_info
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.response_mask import NOTHING_WRITTEN
from zerowait.verl.rewards.rows import MODEL_TOKENS, extra_info
from zerowait.verl.rewards.settlement import SettledSession, settle
from zerowait.verl.rewards.tickets import ticket_in


class Wait(msgspec.Struct, kw_only=True):
    """What a step's rewards cost in time and how many of them were not reached."""

    exposed_s: float = 0.0
    rewards: int = 0
    abstained: Counter[str] = msgspec.field(default_factory=Counter)


class RowRewards:
    """Knows verl's rows by their keys ``{uid}_{session}_{index}``.

    Every output of a session holds the same ticket.

    Args:
        redeemer: fetches rewards in the background.
        redeem_s: how long a reward is waited for. max_abstained: the largest share without one.
        quorum: under ``drop_group``, the share of a group that must have a value.
    """

    def __init__(
        self, redeemer: Redeemer, *, redeem_s: float, max_abstained: float, quorum: float
    ) -> None:
        self._redeemer = redeemer
        self._redeem_s = redeem_s
        self._max_abstained = max_abstained
        self._quorum = quorum
        self._samples: dict[str, Sample | None] = {}
        self._rewards: dict[str, Reward] = {}
        self._validated: list[str] = []
        self.step = Wait()

    def read(self, partition_id: str, keys: Iterable[str]) -> None:
        """Take the rows' tickets and begin to fetch their rewards; returns at once.

        The rows have to be all those of their groups, whose rollouts have ended.
        """
        fresh = [key for key in keys if key not in self._samples]
        if not fresh:
            return
        data = tq.kv_batch_get(
            keys=fresh, partition_id=partition_id, select_fields=["extra_fields"]
        )
        taken = {k: ticket_in(f) for k, f in zip(fresh, data["extra_fields"], strict=True)}
        self._samples |= taken
        samples = [sample for sample in taken.values() if sample is not None]
        of, lost = ended(samples)
        self._redeemer.begin(samples, of=of)
        self._redeemer.give_up(lost)

    def known(self, keys: Iterable[str]) -> bool:
        """Whether every reward of these rows is known; never waits.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        samples = self._sought(keys)
        rewards = self._redeemer.known(samples)
        if rewards is None:
            return False
        self._keep(rewards)
        return True

    def wait(self, keys: Iterable[str], *, within_s: float | None = None) -> None:
        """Wait for the rewards of these rows; what is late then abstains.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        started = time.monotonic()
        patience_s = self._redeem_s if within_s is None else within_s
        self._keep(self._redeemer.collect(self._sought(keys), within_s=patience_s))
        self.step.exposed_s += time.monotonic() - started

    def has_ticket(self, key: str) -> bool:
        """Whether the reward of this row, which was read, comes from the hub."""
        return self._samples.get(key) is not None

    def reward(self, key: str) -> Reward | None:
        """The row's reward; None for a row that has no ticket, or whose reward is not known."""
        sample = self._samples.get(key)
        return None if sample is None else self._rewards.get(ticket_of(sample))

    def sessions(self, keys: Iterable[str]) -> dict[str, tuple[Sample, Reward]]:
        """The rows' sessions by ticket, each once, with its reward, which has to be known."""
        found = {}
        for key in keys:
            sample = self._samples.get(key)
            if sample is not None:
                ticket = ticket_of(sample)
                found[ticket] = (sample, self._rewards[ticket])
        return found

    def settle(self, keys: Sequence[str], *, group_baseline: bool) -> dict[str, SettledSession]:
        """What becomes of each row that has a ticket, after its group had its say."""
        without = {
            k.rpartition("_")[0] for k in keys if k in self._samples and not self._samples[k]
        }
        settled = settle(
            self.sessions(keys),
            quorum=self._quorum,
            group_baseline=group_baseline,
            others=Counter(session.rpartition("_")[0] for session in without),
        )
        self._rewards |= {ticket: session.reward for ticket, session in settled.items()}
        samples = {key: self._samples.get(key) for key in keys}
        return {
            k: settled[ticket_of(sample)] for k, sample in samples.items() if sample is not None
        }

    def write(self, partition_id: str, keys: Iterable[str]) -> None:
        """Write the values that were reached into verl's rows."""
        rewards = {key: self.reward(key) for key in keys}
        values = {k: r.value for k, r in rewards.items() if r is not None and r.value is not None}
        write_scores(partition_id, values)

    def write_infos(self, partition_id: str, keys: Sequence[str]) -> None:
        """Write into verl's rows what it shows beside the reward, in place of the ticket."""
        self._validated += last_outputs(keys)
        told = {key: reward for key in keys if (reward := self.reward(key)) is not None}
        if not told:
            return
        old = tq.kv_batch_get(
            keys=list(told), partition_id=partition_id, select_fields=["extra_fields"]
        )
        rows: list[dict[str, Any]] = []
        for row, (key, reward) in zip(old["extra_fields"], told.items(), strict=True):
            fields = dict(getattr(row, "data", row))
            info = extra_info(reward) | self._episode_info(key)
            rows.append({"extra_fields": fields | {"reward_extra_info": info}})
        fields = list_of_dict_to_tensordict(rows)
        tq.kv_batch_put(keys=list(told), partition_id=partition_id, fields=fields)

    def validated(self) -> list[Reward | None]:
        """Of each session whose infos were written, its reward, in the order of verl's table."""
        return [self.reward(key) for key in self._validated]

    def abstain_without_tokens(self, partition_id: str, keys: Sequence[str]) -> None:
        """Let sessions abstain in which the model wrote no token: no reward can stand anywhere."""
        told = {key: sample for key in keys if (sample := self._samples.get(key)) is not None}
        if not told:
            return
        data = tq.kv_batch_get(
            keys=list(told), partition_id=partition_id, select_fields=["response_mask"]
        )
        masks = zip(told.values(), data["response_mask"].unbind(), strict=True)
        wrote = {ticket_of(sample) for sample, mask in masks if mask.any()}
        for ticket in {ticket_of(sample) for sample in told.values()} - wrote:
            known = self._rewards[ticket]
            if known.value is None:
                continue
            why = f"reward: {FailureKind.BAD_INPUT}: {NOTHING_WRITTEN}"
            lost = msgspec.structs.replace(known, value=None, policy="neutral", why=why)
            self._rewards[ticket] = lost
            self.step.abstained[_reason(lost)] += 1

    def check_lengths(self, partition_id: str, keys: Sequence[str]) -> None:
        """Raise a ConfigError when a response was shaped by a length that is not its mask's.

        The reward manager does not see the mask and takes the agent loop's word; a session of
        several outputs is left to that.
        """
        outputs = Counter(key.rpartition("_")[0] for key in keys)
        lone = [key for key in keys if outputs[key.rpartition("_")[0]] == 1]
        told = {key: sample for key in lone if (sample := self._samples.get(key)) is not None}
        if not told:
            return
        data = tq.kv_batch_get(
            keys=list(told), partition_id=partition_id, select_fields=["response_mask"]
        )
        for mask, sample in zip(data["response_mask"].unbind(), told.values(), strict=True):
            written = int(mask.sum())
            if sample.response_tokens not in (None, written):
                raise ConfigError(
                    f"response {sample.id} was shaped as {sample.response_tokens} tokens long, and "
                    f"by its mask the model wrote {written}: the agent loop has to put the number "
                    f"of its own tokens into AgentLoopOutput.extra_fields[{MODEL_TOKENS!r}]"
                )

    def check_own(self, partition_id: str, keys: Iterable[str]) -> None:
        """Raise a DataError when a reward that an agent loop brought along is no finite number."""
        check_own(partition_id, [k for k in keys if self._samples.get(k, ...) is None])

    def check_ceiling(self) -> None:
        """Raise a JudgementError when too many rewards of the step abstained to learn from it."""
        lost = self.step.abstained.total()
        if lost > self._max_abstained * self.step.rewards:
            whys = ", ".join(f"{why} ({n})" for why, n in self.step.abstained.most_common(3))
            raise JudgementError(
                f"{lost} of {self.step.rewards} rewards of this step abstained, more than "
                f"reward.zerowait.max_abstained={self._max_abstained:g} allows: {whys}"
            )

    def forget(self, keys: Iterable[str]) -> None:
        """Drop rows that are done with; what is not known of them is given up."""
        dropped = {key: self._samples.pop(key, None) for key in keys}
        samples = {ticket_of(sample): sample for sample in dropped.values() if sample is not None}
        for ticket in samples:
            self._rewards.pop(ticket, None)
        self._redeemer.forget(samples.values())

    def give_up(self, tickets: Iterable[str]) -> None:
        """Let nobody judge what was handed in under these names and never read."""
        self._redeemer.give_up(tickets)

    def begin_step(self, trained: Iterable[str]) -> None:
        """Drop the rows that the step before was `trained` on, and begin to count anew."""
        self.forget(trained)
        self.step = Wait()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is read inside, as in validation, is not counted for the step, and dropped after."""
        step, before = self.step, set(self._samples)
        self.step = Wait()
        try:
            yield
        finally:
            self.step = step
            self._validated = []
            self.forget([key for key in self._samples if key not in before])

    def wait_for_news(self, within_s: float) -> None:
        """Return when some reward has come, or after `within_s`."""
        self._redeemer.wait_for_news(within_s)

    def _episode_info(self, key: str) -> dict[str, float | str]:
        sample = self._samples.get(key)
        return {} if sample is None else episode_info(sample)

    def _sought(self, keys: Iterable[str]) -> list[Sample]:
        samples = (self._samples.get(key) for key in keys)
        return [s for s in samples if s is not None and ticket_of(s) not in self._rewards]

    def _keep(self, rewards: dict[str, Reward]) -> None:
        """Counts each reward once, when it becomes known."""
        for ticket, reward in rewards.items():
            if ticket in self._rewards:
                continue
            self._rewards[ticket] = reward
            self.step.rewards += 1
            if reward.value is None:
                self.step.abstained[_reason(reward)] += 1


def last_outputs(keys: Sequence[str]) -> list[str]:
    """The last output of each session, in their order among `keys`.

    >>> last_outputs(["a_0_1", "a_0_0", "a_1_0"])
    ['a_0_1', 'a_1_0']
    """
    last: dict[str, tuple[int, int]] = {}
    for place, key in enumerate(keys):
        session, _, index = key.rpartition("_")
        last[session] = max(last.get(session, (-1, -1)), (int(index), place))
    return [keys[place] for place in sorted(place for _, place in last.values())]


def _reason(reward: Reward) -> str:
    """The first component that abstained and the kind of it: ``quality: timeout``."""
    return ": ".join(reward.why.split(": ")[:2]) or "nothing was measured"
