"""Requests that show a judge several responses to one prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zerowait.completion import Completion
from zerowait.config.schema import Judge, VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge.fence import fenced
from zerowait.judge.parsing.order import labels_for, order_format, read_order
from zerowait.judge.request import ChatRequest, SampleTexts, chat_request, texts_for
from zerowait.judge.rubric import REPLY_FORMAT, RESPONSES, Rubric
from zerowait.types import Abstain, FailureKind, Outcome, Sample


class Lineup(msgspec.Struct, frozen=True):
    """A request that shows several responses, and how its reply is read.

    Args:
        request: the chat request.
        labels: of the responses, in the order in which they are shown.
        ties: whether the judge may call some equally good.
    """

    request: ChatRequest
    labels: list[str]
    ties: bool

    def read(self, completion: Completion) -> Outcome:
        """The order that a decoded reply gives; see `read_order`."""
        return read_order(completion, self.labels, ties=self.ties)


def shared_texts(samples: Sequence[Sample], rubric: Rubric, judge: Judge) -> SampleTexts | Abstain:
    """The rubric's texts that all samples of a group share.

    Abstain(bad_input) where a sample lacks one, or the samples differ in one.
    """
    first: SampleTexts | None = None
    for sample in samples:
        texts = texts_for(sample, rubric, judge)
        if isinstance(texts, Abstain):
            return texts
        if first is None:
            first = texts
        elif texts != first:
            names = [name for name in texts if texts[name] != first[name]]
            return Abstain(
                FailureKind.BAD_INPUT,
                f"the siblings differ in {{{{{names[0]}}}}}, which the rubric {rubric.name!r} "
                "says once for all of them",
            )
    return SampleTexts() if first is None else first


def lineup(shared: SampleTexts, responses: Sequence[str], judge: Judge, rubric: Rubric) -> Lineup:
    """The request that shows `responses` in this order.

    The fenced texts that the responses share come out the same in every request about them, and the
    same responses in another order get the same labels by position.

    Args:
        shared: the texts that the rubric shows once, such as the prompt.
        responses: at least two different ones.
        judge: its settings; its verdict compares.
        rubric: the prompt, with ``{{responses}}``.
    """
    labels = labels_for(responses, beside=shared.values())
    names = [f"response {label}" for label in labels]
    texts = fenced({**shared, **dict(zip(names, responses, strict=True))})
    comparison = judge.verdict.comparison
    ties = comparison is not None and comparison.ties
    filled = {name: texts[name] for name in shared}
    filled[RESPONSES] = "\n\n".join(texts[name] for name in names)
    filled[REPLY_FORMAT] = order_format(labels, ties=ties, reason_first=rubric.reason_first)
    request = chat_request(
        judge, rubric, filled, parameters=judge.parameters, pictures=shared.pictures
    )
    return Lineup(request, labels, ties)


def check_rubric(rubric: Rubric, rule: VerdictRule) -> None:
    """Check that a rubric shows as many responses as the verdict is about.

    Raises:
        ConfigError: it shows one response where several are compared, or the other way round.
    """
    compares = rule.comparison is not None
    if compares and RESPONSES not in rubric.needs:
        raise ConfigError(
            f"the rubric {rubric.name!r} shows one response, and the verdict compares several: "
            f"it needs {{{{{RESPONSES}}}}}, as the built-in pairwise and ranking have it"
        )
    if not compares and RESPONSES in rubric.needs:
        raise ConfigError(
            f"the rubric {rubric.name!r} compares {{{{{RESPONSES}}}}}, and needs a verdict such as "
            "{pairs: group} or {rank: group}"
        )
