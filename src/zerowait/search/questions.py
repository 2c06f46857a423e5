"""Questions of published data sets as rows to train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from zerowait.errors import DataError, did_you_mean
from zerowait.search.prompts import search_messages
from zerowait.types import Message

Instructions: TypeAlias = Literal["search", "none", "keep"]

_QUESTION = ("question", "query")
_ANSWERS = ("golden_answers", "answers", "answer")
_ID = ("id", "_id", "question_id")
# How a mapping keeps its answers: Search-R1's gold, TriviaQA's, SQuAD's.
_WITHIN = ("target", "aliases", "value", "text")


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file keeps what a question has; None looks under the usual names.

    Args:
        question, answers, id: names of columns.
        keep: further columns that go along into ``extra_info``.
    """

    question: str | None = None
    answers: str | None = None
    id: str | None = None
    keep: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its accepted answers.

    Args:
        text: empty where only `prompt` is known.
        answers: at least one.
        id: as the file names it; empty where it does not.
        source: the file's own ``data_source``; empty where it has none.
        prompt: the file's own chat messages, if it has some.
        extra: the columns that were to be kept.
    """

    text: str
    answers: tuple[str, ...]
    id: str = ""
    source: str = ""
    prompt: tuple[Message, ...] = ()
    extra: dict[str, Any] = {}


def question_in(row: Mapping[str, Any], columns: Columns, *, where: str) -> Question:
    """The question of a row in the manner of Search-R1, FlashRAG, HotpotQA, NQ, TriviaQA or SQuAD.

    Args:
        row: with columns such as ``question`` and ``golden_answers`` (or ``answer``, or
            ``reward_model.ground_truth``).
        columns: other names.
        where: how errors call the row.

    Raises:
        DataError: there is no question or no answer; names what the row has instead.

    >>> row = {"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}
    >>> question_in(row, Columns(), where="row 1").answers
    ('Jane Austen',)
    """
    prompt = row.get("prompt")
    messages = tuple(prompt) if isinstance(prompt, list) else ()
    given = row.get("extra_info")
    nested = given if isinstance(given, Mapping) else {}
    text = _value(row, columns.question, _QUESTION, where=where, what="question")
    if text is None and columns.question is None:
        text = nested.get("question")
    if text is None and not messages:
        raise _missing(row, "question", _QUESTION, where)
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise DataError(f"{where}: the question is {_short(text)}, and has to be text")
    id_ = _value(row, columns.id, _ID, where=where, what="id")
    return Question(
        text=(text or "").strip(),
        answers=_answers_in(row, columns, where),
        id="" if id_ is None else str(id_),
        source=str(row.get("data_source") or ""),
        prompt=messages,
        extra={name: _kept(row, name, where) for name in columns.keep},
    )


def training_row(
    question: Question, *, index: int, source: str, instructions: Instructions, where: str = ""
) -> dict[str, Any]:
    """The row that `zerowait.verl.dataset.RewardDataset` and verl's own data set take.

    Args:
        question: the question.
        index: the row's number, unique in its file.
        source: ``data_source`` where the question has none of its own.
        instructions: ``search`` asks in the words of `search_prompt`, ``none`` gives the question
            alone, ``keep`` takes the file's own messages.
        where: how errors call the row.

    Raises:
        DataError: the wanted prompt cannot be made from what the row has.
    """
    if instructions == "keep" and not question.prompt:
        raise DataError(f"{where}: has no chat messages under 'prompt' to keep")
    if instructions != "keep" and not question.text:
        raise DataError(
            f"{where}: has a prompt and no question: name its column with --question, or keep "
            "the prompt with --instructions keep"
        )
    prompts: dict[str, list[Message]] = {
        "search": search_messages(question.text),
        "none": [{"role": "user", "content": question.text}],
        "keep": list(question.prompt),
    }
    return {
        "data_source": question.source or source,
        "prompt": prompts[instructions],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": list(question.answers)},
        "extra_info": {
            **question.extra,
            "index": index,
            "id": question.id or str(index),
            "question": question.text,
        },
    }


def _answers_in(row: Mapping[str, Any], columns: Columns, where: str) -> tuple[str, ...]:
    found = _value(row, columns.answers, _ANSWERS, where=where, what="answers")
    if found is None and columns.answers is None:
        reward_model = row.get("reward_model")
        found = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    if found is None:
        raise _missing(row, "answer", _ANSWERS, where)
    answers = tuple(dict.fromkeys(text.strip() for text in _texts(found) if text.strip()))
    if not answers:
        raise DataError(f"{where}: no answer can be read from {_short(found)}")
    return answers


def _texts(found: Any) -> list[str]:
    if isinstance(found, str):
        return [found]
    if isinstance(found, bool | None):
        return []
    if isinstance(found, int | float):
        return [str(found)]
    if isinstance(found, Mapping):
        return [text for name in _WITHIN if name in found for text in _texts(found[name])]
    if isinstance(found, Sequence):
        return [text for item in found for text in _texts(item)]
    return []


def _value(
    row: Mapping[str, Any], named: str | None, usual: Sequence[str], *, where: str, what: str
) -> Any:
    if named is None:
        return next((row[name] for name in usual if row.get(name) is not None), None)
    if named not in row:
        hint = did_you_mean(named, row)
        raise DataError(f"{where}: has no column {named!r} for the {what}{hint}")
    return row[named]


def _kept(row: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise DataError(f"{where}: has no column {name!r} to keep{did_you_mean(name, row)}")
    return row[name]


def _missing(row: Mapping[str, Any], what: str, usual: Sequence[str], where: str) -> DataError:
    hint = did_you_mean(usual[0], row)
    option = "--question" if what == "question" else "--answers"
    return DataError(
        f"{where}: has no {what} under {', '.join(usual)}: name its column with {option}{hint}"
    )


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
