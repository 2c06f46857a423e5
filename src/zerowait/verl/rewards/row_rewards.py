"""The rewards of verl's rows: which ticket each row holds, and its reward once redeemed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from zerowait.errors import ConfigError, JudgementError
from zerowait.hub import Phase
from zerowait.hub.tickets import ticket_of
from zerowait.types import FailureKind, Reward, Sample
from zerowait.verl.response_mask import NOTHING_WRITTEN
from zerowait.verl.rewards.advantage import write_scores
from zerowait.verl.rewards.agent_loop_rewards import check_finite_rewards
from zerowait.verl.rewards.episode_metrics import episode_info
from zerowait.verl.rewards.group_completion import incomplete_groups
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.reward_info import extra_info
from zerowait.verl.rewards.row_treatment import SettledSession, settle
from zerowait.verl.rewards.tickets import ticket_in
from zerowait.verl.rewards.turn_rewards import turn_places
from zerowait.verl.rows import MODEL_TOKENS

WAIT: Final = "wait"
_SAME_WAIT_S: Final = 0.1


class StepCounts(msgspec.Struct, kw_only=True):
    """What a step's rewards cost in time, and how many of them abstained.

    Args:
        exposed_s: seconds in which the trainer only waited for rewards.
        rewards: rewards that arrived.
        abstained: those without a value, by component and failure.
        waits: when the trainer waited for rewards; waits that follow each other are one.
    """

    exposed_s: float = 0.0
    rewards: int = 0
    abstained: Counter[str] = msgspec.field(default_factory=Counter)
    waits: list[Phase] = []

    def waited_since(self, began_at: float) -> None:
        """Keep a wait that ends now; `began_at` is a Unix time."""
        if self.waits and began_at - self.waits[-1].ended_at < _SAME_WAIT_S:
            began_at = self.waits.pop().began_at
        self.waits.append(Phase(name=WAIT, began_at=began_at, ended_at=time.time()))


class RowRewards:
    """The rewards of rows by verl's keys ``{uid}_{session}_{index}``.

    A session is one trajectory; each of its outputs is a row, and all of them hold one ticket.

    Args:
        redeemer: redeems tickets in the background.
        redeem_s: seconds to wait for a reward.
        max_abstained: the largest share of a step's rewards that may abstain, in (0, 1].
        quorum: under ``drop_group``, the share of a group that must have a value, in [0, 1].
        pays_by_turn: whether rewards of turns stand on the turns' own tokens.
    """

    def __init__(
        self,
        redeemer: Redeemer,
        *,
        redeem_s: float,
        max_abstained: float,
        quorum: float,
        pays_by_turn: bool = False,
    ) -> None:
        self._pays_by_turn = pays_by_turn
        self._redeemer = redeemer
        self._redeem_s = redeem_s
        self._max_abstained = max_abstained
        self._quorum = quorum
        self._samples: dict[str, Sample | None] = {}
        self._rewards: dict[str, Reward] = {}
        self._validated: list[str] = []
        self.step = StepCounts()

    def read(self, partition_id: str, keys: Iterable[str]) -> None:
        """Read the rows' tickets and start to redeem them; returns at once.

        `keys` must hold all rows of their groups, whose rollouts must have ended.
        """
        fresh = [key for key in keys if key not in self._samples]
        if not fresh:
            return
        data = tq.kv_batch_get(
            keys=fresh, partition_id=partition_id, select_fields=["extra_fields"]
        )
        read = {k: ticket_in(f) for k, f in zip(fresh, data["extra_fields"], strict=True)}
        self._samples |= read
        samples = [sample for sample in read.values() if sample is not None]
        sizes, missing = incomplete_groups(samples)
        self._redeemer.begin(samples, sizes=sizes)
        self._redeemer.give_up(missing)

    def known(self, keys: Iterable[str]) -> bool:
        """Whether the rewards of all these rows have arrived; never waits.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        rewards = self._redeemer.known(self._awaited(keys))
        if rewards is None:
            return False
        self._keep(rewards)
        return True

    def wait(self, keys: Iterable[str], *, within_s: float | None = None) -> None:
        """Wait for the rewards of these rows; one that comes later abstains with ``timeout``.

        Args:
            keys: of the rows.
            within_s: seconds to wait; None waits `redeem_s`.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        started, began_at = time.monotonic(), time.time()
        limit_s = self._redeem_s if within_s is None else within_s
        self._keep(self._redeemer.collect(self._awaited(keys), within_s=limit_s))
        self.step.exposed_s += time.monotonic() - started
        self.step.waited_since(began_at)

    def has_ticket(self, key: str) -> bool:
        """Whether this row, which was read, gets its reward from the hub."""
        return self._samples.get(key) is not None

    def reward(self, key: str) -> Reward | None:
        """The row's reward; None for a row without a ticket, or whose reward has not arrived."""
        sample = self._samples.get(key)
        return None if sample is None else self._rewards.get(ticket_of(sample))

    def sessions(self, keys: Iterable[str]) -> dict[str, tuple[Sample, Reward]]:
        """Sample and reward of each of the rows' sessions, by ticket; the rewards must be known."""
        return {
            ticket: (sample, self._rewards[ticket])
            for sample in self._with_ticket(keys).values()
            for ticket in [ticket_of(sample)]
        }

    def settle(self, keys: Sequence[str], *, group_baseline: bool) -> dict[str, SettledSession]:
        """By row with a ticket, its reward and treatment after the rules of its group.

        Args:
            keys: of the step's rows, whose rewards must be known.
            group_baseline: whether the estimator compares the responses of a group.
        """
        without_ticket = {
            k.rpartition("_")[0] for k in keys if k in self._samples and not self._samples[k]
        }
        settled = settle(
            self.sessions(keys),
            quorum=self._quorum,
            group_baseline=group_baseline,
            others=Counter(session.rpartition("_")[0] for session in without_ticket),
        )
        self._rewards |= {ticket: session.reward for ticket, session in settled.items()}
        return {k: settled[ticket_of(sample)] for k, sample in self._with_ticket(keys).items()}

    def write(self, partition_id: str, keys: Iterable[str]) -> None:
        """Write the rewards that have a value into verl's rows."""
        rewards = {key: self.reward(key) for key in keys}
        values = {k: r.value for k, r in rewards.items() if r is not None and r.value is not None}
        turns = {}
        if self._pays_by_turn:
            turns = {
                key: turn_places(reward)
                for key in last_outputs(list(values))
                if (reward := rewards[key]) is not None
            }
        write_scores(partition_id, values, turns)

    def write_infos(self, partition_id: str, keys: Sequence[str]) -> None:
        """Write what verl logs beside a reward into its rows, in place of the ticket."""
        self._validated += last_outputs(keys)
        rewards = {key: reward for key in keys if (reward := self.reward(key)) is not None}
        if not rewards:
            return
        old = tq.kv_batch_get(
            keys=list(rewards), partition_id=partition_id, select_fields=["extra_fields"]
        )
        rows: list[dict[str, Any]] = []
        for row, (key, reward) in zip(old["extra_fields"], rewards.items(), strict=True):
            fields = dict(getattr(row, "data", row))
            sample = self._samples[key]
            info = extra_info(reward) | ({} if sample is None else episode_info(sample))
            rows.append({"extra_fields": fields | {"reward_extra_info": info}})
        fields = list_of_dict_to_tensordict(rows)
        tq.kv_batch_put(keys=list(rewards), partition_id=partition_id, fields=fields)

    def validated(self) -> list[Reward | None]:
        """The reward of each session whose infos were written, in the order of verl's table."""
        return [self.reward(key) for key in self._validated]

    def abstain_without_tokens(self, partition_id: str, keys: Sequence[str]) -> None:
        """Let each session abstain in which the model wrote no token that could carry a reward."""
        samples = self._with_ticket(keys)
        if not samples:
            return
        masks = _response_masks(partition_id, samples)
        wrote = {ticket_of(samples[key]) for key, mask in masks.items() if mask.any()}
        for ticket in {ticket_of(sample) for sample in samples.values()} - wrote:
            known = self._rewards[ticket]
            if known.value is None:
                continue
            why = f"reward: {FailureKind.BAD_INPUT}: {NOTHING_WRITTEN}"
            lost = msgspec.structs.replace(known, value=None, policy="neutral", why=why)
            self._rewards[ticket] = lost
            self.step.abstained[_failure(lost)] += 1

    def check_lengths(self, partition_id: str, keys: Sequence[str]) -> None:
        """Raise a ConfigError when a response was shaped by another length than its mask's.

        The reward manager does not see the mask and uses the number that the agent loop gave. Only
        sessions with a single output are checked.
        """
        outputs = Counter(key.rpartition("_")[0] for key in keys)
        samples = self._with_ticket(key for key in keys if outputs[key.rpartition("_")[0]] == 1)
        if not samples:
            return
        for key, mask in _response_masks(partition_id, samples).items():
            sample, written = samples[key], int(mask.sum())
            if sample.response_tokens not in (None, written):
                raise ConfigError(
                    f"response {sample.id} was shaped as {sample.response_tokens} tokens long, and "
                    f"by its mask the model wrote {written}: the agent loop has to put the number "
                    f"of its own tokens into AgentLoopOutput.extra_fields[{MODEL_TOKENS!r}]"
                )

    def check_agent_loop_rewards(self, partition_id: str, keys: Iterable[str]) -> None:
        """Raise a DataError when a reward that an agent loop has set is not finite."""
        check_finite_rewards(partition_id, [k for k in keys if self._samples.get(k, ...) is None])

    def check_ceiling(self) -> None:
        """Raise a JudgementError when more of the step's rewards abstained than is allowed."""
        lost = self.step.abstained.total()
        if lost > self._max_abstained * self.step.rewards:
            whys = ", ".join(f"{why} ({n})" for why, n in self.step.abstained.most_common(3))
            raise JudgementError(
                f"{lost} of {self.step.rewards} rewards of this step abstained, more than "
                f"reward.zerowait.max_abstained={self._max_abstained:g} allows: {whys}"
            )

    def forget(self, keys: Iterable[str]) -> None:
        """Drop these rows, and give up the rewards that have not arrived."""
        dropped = {key: self._samples.pop(key, None) for key in keys}
        samples = {ticket_of(sample): sample for sample in dropped.values() if sample is not None}
        for ticket in samples:
            self._rewards.pop(ticket, None)
        self._redeemer.forget(samples.values())

    def give_up(self, tickets: Iterable[str]) -> None:
        """Tell the hub to stop judging tickets that were deposited and never read."""
        self._redeemer.give_up(tickets)

    def begin_step(self, trained: Iterable[str]) -> None:
        """Drop the rows that the last step was `trained` on, and set the counts to 0."""
        self.forget(trained)
        self.step = StepCounts()

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Keep a validation apart: its rows are dropped at the end, and the step's counts kept."""
        step, before = self.step, set(self._samples)
        self.step = StepCounts()
        try:
            yield
        finally:
            self.step = step
            self._validated = []
            self.forget([key for key in self._samples if key not in before])

    def wait_for_change(self, within_s: float, *, exposed: bool = True) -> None:
        """Return when a reward has arrived, or after `within_s` seconds.

        Args:
            within_s: the longest wait.
            exposed: whether nothing is computed meanwhile; only such waits are recorded.
        """
        began_at = time.time()
        self._redeemer.wait_for_change(within_s)
        if exposed:
            self.step.waited_since(began_at)

    def _with_ticket(self, keys: Iterable[str]) -> dict[str, Sample]:
        samples = {key: self._samples.get(key) for key in keys}
        return {key: sample for key, sample in samples.items() if sample is not None}

    def _awaited(self, keys: Iterable[str]) -> list[Sample]:
        """The samples of these rows whose rewards have not arrived."""
        samples = self._with_ticket(keys).values()
        return [sample for sample in samples if ticket_of(sample) not in self._rewards]

    def _keep(self, rewards: Mapping[str, Reward]) -> None:
        """Store rewards, and count each of them once."""
        for ticket, reward in rewards.items():
            if ticket in self._rewards:
                continue
            self._rewards[ticket] = reward
            self.step.rewards += 1
            if reward.value is None:
                self.step.abstained[_failure(reward)] += 1


def last_outputs(keys: Sequence[str]) -> list[str]:
    """The key of each session's last output, in their order among `keys`.

    >>> last_outputs(["a_0_1", "a_0_0", "a_1_0"])
    ['a_0_1', 'a_1_0']
    """
    last: dict[str, tuple[int, int]] = {}
    for position, key in enumerate(keys):
        session, _, index = key.rpartition("_")
        last[session] = max(last.get(session, (-1, -1)), (int(index), position))
    return [keys[position] for position in sorted(position for _, position in last.values())]


def _response_masks(partition_id: str, keys: Iterable[str]) -> dict[str, Any]:
    """By row, its response mask: a tensor of shape (response_length,)."""
    names = list(keys)
    data = tq.kv_batch_get(keys=names, partition_id=partition_id, select_fields=["response_mask"])
    return dict(zip(names, data["response_mask"].unbind(), strict=True))


def _failure(reward: Reward) -> str:
    """The first component that abstained and its failure, such as ``quality: timeout``."""
    return ": ".join(reward.why.split(": ")[:2]) or "nothing was measured"
