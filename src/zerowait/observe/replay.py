"""Replay: the samples of a record scored by another configuration, answered from the record."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from zerowait.config import Endpoint, RewardConfig
from zerowait.config.schema import (
    Component,
    Judge,
    JudgeComponent,
    ScorerComponent,
    ShapeComponent,
)
from zerowait.engine import AnsweredBy, Engine, RecordedReply
from zerowait.engine.combine import unraised
from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.observe.config_differences import (
    config_differences,
    notes_on_earlier_rows,
    used_configurations,
)
from zerowait.observe.recorded_samples import (
    RecordedRow,
    outcome_in,
    rows_in,
    steps_in,
)
from zerowait.observe.reward_comparison import Pair, RewardedSample
from zerowait.pictures import picture_url
from zerowait.record import PICTURES, described, open_index
from zerowait.types import Abstain, FailureKind, Outcome, Reward, Sample, Skipped

_REPLIES: Final = """
SELECT judgements.key, vote, outcome, value, kind, why, NULL AS detail,
  asked.body AS request, said.body AS reply
FROM judgements LEFT JOIN texts AS asked ON asked.text = request
  LEFT JOIN texts AS said ON said.text = reply
"""
_MOST_REPLIES: Final = 4096
_MOST_SAMPLES: Final = 512
_NO_TEXTS: Final = (
    "their texts were not kept (record: texts), and without them only recorded outcomes can be "
    "weighed again: --keep every component"
)
_FILE: Final = re.compile(rb"(?<=\")%b/[0-9a-f]{64}\.\w+(?=\")" % PICTURES.encode())
"""A picture in a recorded request: the path of its file."""
_NOWHERE: Final = "http://replay.invalid/v1"
_KEPT: Final = "recorded."
"""Begins the name of the column that has a component's recorded outcome."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did.

    Args:
        pairs: each sample with its reward in the record, and with its new one.
        answered: how the judges' questions were answered, by judge.
        missing: why the record could not answer, by judge.
        requests: sent to judges.
        not_replayed: rows that could not be scored, by why.
        notes: what the user should know about this replay.
        changes: between the configuration of the run and the new one, in words; None where the run
            kept none.
    """

    pairs: list[Pair]
    answered: dict[str, dict[AnsweredBy, int]]
    missing: dict[str, dict[str, int]]
    requests: int
    not_replayed: dict[str, int]
    notes: list[str]
    changes: list[str] | None = None


class _RunReplies:
    """The judgements in the index of a record.

    Args:
        connection: to the index.
        folder: of the record, which holds the pictures of its requests.
        may_ask: whether a judge is asked for what is not there.
    """

    def __init__(self, connection: sqlite3.Connection, folder: Path, *, may_ask: bool) -> None:
        self._connection = connection
        self._folder = folder
        self.may_ask = may_ask
        self.answered: dict[str, Counter[AnsweredBy]] = {}
        self.missing: dict[str, Counter[str]] = {}
        self.with_key = lru_cache(maxsize=_MOST_REPLIES)(self._with_key)
        """The judgements of one request, the latest first; equal ones once."""
        self.of_samples = lru_cache(maxsize=_MOST_SAMPLES)(self._of_samples)
        """The judgements of the samples with these names in the record, the latest first."""

    def _with_key(self, key: str) -> Sequence[RecordedReply]:
        group = "WHERE judgements.key = ? GROUP BY reply, kind ORDER BY max(judgement) DESC"
        return [self._reply(row) for row in self._connection.execute(_REPLIES + group, (key,))]

    def _of_samples(self, uids: tuple[str, ...]) -> Sequence[RecordedReply]:
        named = "JOIN judgement_rows USING (judgement) WHERE uid = ? ORDER BY judgement DESC"
        return [
            self._reply(row)
            for uid in uids
            if uid
            for row in self._connection.execute(_REPLIES + named, (uid,))
        ]

    def _reply(self, row: sqlite3.Row) -> RecordedReply:
        outcome = outcome_in(row)
        request = (row["request"] or "").encode("utf-8", "surrogatepass")
        return RecordedReply(
            key=row["key"],
            vote=row["vote"] or 0,
            request=_FILE.sub(self._picture, request) if _FILE.search(request) else request,
            reply=(row["reply"] or "").encode("utf-8", "surrogatepass"),
            failure=outcome if isinstance(outcome, Abstain) else None,
        )

    def _picture(self, file: re.Match[bytes]) -> bytes:
        """The data of a picture that a recorded request names; its name where there is none."""
        part = {"type": "image", "path": file[0].decode()}
        try:
            return (picture_url(part, folder=self._folder) or file[0].decode()).encode()
        except DataError:
            return file[0]

    def count(self, judge: str, how: AnsweredBy, why: str = "") -> None:
        """Count how a question to `judge` was answered; of a missing answer, and why."""
        self.answered.setdefault(judge, Counter())[how] += 1
        if why:
            self.missing.setdefault(judge, Counter())[why] += 1


def rows_to_replay(connection: sqlite3.Connection) -> int:
    """How many rows of a record count.

    Args:
        connection: from `zerowait.record.open_index`.
    """
    [count] = connection.execute("SELECT count(*) FROM rewards WHERE current = 1").fetchone()
    return int(count)


async def replay(
    folder: Path,
    config: RewardConfig,
    *,
    ask: bool = False,
    keep: Collection[str] = (),
    on_reward: Callable[[], None] = lambda: None,
    write: Callable[[RecordedRow, Reward], None] = lambda _row, _reward: None,
) -> Replayed:
    """Score the samples of a record by `config`; rules run again, judges answer from the record.

    Groups are the rows of one step that share a ``group``. The policy ``raise`` counts as
    ``neutral``: a failure of then is no reason to stop.

    Args:
        folder: of the record.
        config: of the new rewards.
        ask: whether the judges are asked for what the record and the cache cannot answer.
        keep: components whose recorded outcomes are taken as they are. Where it names all, rows
            whose texts were not kept are scored, too.
        on_reward: called for each row that is scored.
        write: called with each row and its final reward, in order, step by step.

    Raises:
        ConfigError: the configuration does not fit.
        DataError: there is no record, it cannot be read, or none of its rows can be scored.
    """
    with closing(open_index(folder)) as connection:
        replies = _RunReplies(connection, folder, may_ask=ask)
        used = used_configurations(connection, folder)
        now = described(config)
        changes = config_differences(used[-1].reward, now) if used else None
        _check_kept(connection, config, keep)
        all_kept = set(config.components) == set(keep)  # then no text is read
        config = _with_kept(_for_replay(config, ask=ask), keep)
        earlier = notes_on_earlier_rows(used, now, named="the given one")
        notes = [*earlier, *_notes(connection, config, ask=ask)]
        pairs: list[Pair] = []
        not_replayed: Counter[str] = Counter()
        async with Engine(config, replay=replies) as engine:
            for split, step in steps_in(connection):
                found = rows_in(connection, folder, split, step, without_texts=all_kept)
                rows = _scorable(found, engine, not_replayed)
                samples = [sample for row in rows if (sample := _with_kept_outcomes(row, keep))]
                rewards = await engine.score_all(
                    samples,
                    on_reward=lambda *_: on_reward(),
                    uids=[row.then.uid for row in rows],
                )
                for row, reward in zip(rows, rewards, strict=True):
                    write(row, reward)
                    pairs.append((row.then, _now(row.then, reward)))
            requests = engine.stats().requests
    if not pairs:
        why = "; ".join(not_replayed) or "it has no rows"
        raise DataError(f"{folder}: no row can be scored again: {why}")
    return Replayed(
        pairs=pairs,
        answered={name: dict(counts) for name, counts in replies.answered.items()},
        missing={name: dict(counts.most_common()) for name, counts in replies.missing.items()},
        requests=requests,
        not_replayed=dict(not_replayed),
        notes=notes,
        changes=changes,
    )


def _now(then: RewardedSample, reward: Reward) -> RewardedSample:
    return msgspec.structs.replace(
        then, value=reward.value, components=reward.components, why=reward.why
    )


def _scorable(
    rows: Sequence[RecordedRow], engine: Engine, left_out: Counter[str]
) -> list[RecordedRow]:
    """The rows that can be scored; the others are counted by why."""
    found = []
    for row in rows:
        if row.sample is None:
            left_out[_NO_TEXTS] += 1
            continue
        try:
            engine.check(row.sample)
        except DataError as error:
            left_out[str(error)] += 1
            continue
        found.append(row)
    return found


def _for_replay(config: RewardConfig, *, ask: bool) -> RewardConfig:
    """The configuration of a replay: it measures no drift, and without `ask` it needs no key."""
    on_failure = config.on_failure
    for kind in FailureKind:
        on_failure = unraised(on_failure, kind)
    judges = {name: _without_anchors(judge) for name, judge in config.judges.items()}
    changes = {"judges": judges, "on_failure": on_failure}
    if ask:
        return msgspec.structs.replace(config, **changes)
    traffic = msgspec.structs.replace(
        config.traffic, give_up_after="off", budget_usd=None, validation_budget_usd=None
    )
    unasked = {name: _unasked(judge) for name, judge in judges.items()}
    return msgspec.structs.replace(config, **(changes | {"judges": unasked, "traffic": traffic}))


def _check_kept(
    connection: sqlite3.Connection, config: RewardConfig, keep: Collection[str]
) -> None:
    """Raise a ConfigError for a component that cannot be taken from the record."""
    recorded = [row[0] for row in connection.execute("SELECT DISTINCT component FROM components")]
    for name in keep:
        if name not in config.components:
            near = did_you_mean(name, config.components)
            raise ConfigError(f"--keep {name}: is no component of the configuration{near}")
        if name not in recorded:
            near = did_you_mean(name, recorded)
            raise ConfigError(f"--keep {name}: is no component of the record{near}")
        if isinstance(config.components[name], ShapeComponent):
            raise ConfigError(f"--keep {name}: is a shape, which is computed from the others anew")


def _with_kept(config: RewardConfig, keep: Collection[str]) -> RewardConfig:
    """The configuration whose components in `keep` are read from the sample."""
    components: dict[str, Component] = dict(config.components)
    for name in keep:
        old = components[name]
        assert not isinstance(old, ShapeComponent)  # noqa: S101 - it was checked
        components[name] = ScorerComponent(
            scorer="column",
            weight=old.weight,
            gate=old.gate,
            sources=old.sources,
            options={"key": _KEPT + name},
        )
    used = {each.judge for each in components.values() if isinstance(each, JudgeComponent)}
    panels = {name: panel for name, panel in config.panels.items() if name in used}
    used |= {member for panel in panels.values() for member in panel.members}
    judges = {name: judge for name, judge in config.judges.items() if name in used}
    return msgspec.structs.replace(config, components=components, judges=judges, panels=panels)


def _with_kept_outcomes(row: RecordedRow, keep: Collection[str]) -> Sample | None:
    """The row's sample, with the outcomes to keep in its columns.

    A component that was skipped, because its gate was closed, say, has no outcome to keep: where
    the new gate is open it abstains.
    """
    if not keep or row.sample is None:
        return row.sample
    kept: dict[str, Outcome] = {}
    for name in keep:
        outcome = row.then.components.get(name)
        if isinstance(outcome, Skipped):
            why = f"the record cannot answer: {name} was skipped ({outcome.why})"
            outcome = Abstain(FailureKind.CANCELLED, why)
        if outcome is not None:
            kept[_KEPT + name] = outcome
    return msgspec.structs.replace(row.sample, extra={**row.sample.extra, **kept})


def _without_anchors(judge: Judge) -> Judge:
    return msgspec.structs.replace(judge, anchors=None)


def _unasked(judge: Judge) -> Judge:
    """The judge with one endpoint that is never asked: no key is needed, and no server started."""
    endpoint = Endpoint(
        base_url=_NOWHERE,
        model=judge.endpoints[0].model,
        api=judge.endpoints[0].speaks,
        endings=list(judge.endings),
    )
    return msgspec.structs.replace(judge, endpoints=[endpoint])


def _notes(connection: sqlite3.Connection, config: RewardConfig, *, ask: bool) -> Iterator[str]:
    """What the user should know before the rows are scored."""
    if not config.judges:
        return
    [judgements] = connection.execute("SELECT count(*) FROM judgements").fetchone()
    [replies] = connection.execute(
        "SELECT count(*) FROM judgements JOIN texts ON text = reply WHERE body IS NOT NULL"
    ).fetchone()
    cache = (config.cache.url and "in Redis") or config.cache.path
    where = f"from the cache ({cache})" if cache else "by nothing: the configuration has no cache"
    if not judgements:
        yield f"the record has no judgements, so that judges are answered {where}"
    elif not replies:
        yield f"the record keeps no replies (record: texts), so that judges are answered {where}"
    comparing = [n for n, judge in config.judges.items() if judge.verdict.comparison is not None]
    if comparing and judgements:
        named = ", ".join(comparing)
        yield f"comparisons of responses ({named}) are answered where the run had the very same"
    if ask:
        yield "the judges are asked for what the record cannot answer (--ask)"
