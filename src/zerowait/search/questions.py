"""Questions of published data sets as rows to train on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import msgspec

from zerowait.errors import DataError, did_you_mean
from zerowait.search.prompts import search_messages
from zerowait.types import Message

Instructions: TypeAlias = Literal["search", "none", "keep"]

OWN_EXTRA: Final = ("index", "id", "question", "split", "group_size")
"""Keys of ``extra_info`` that `training_row` or the training data set writes itself."""

_WHOLE_BELOW: Final = 1e15
_QUESTION = ("question", "query")
_ANSWERS = ("golden_answers", "answers", "answer")
_ID = ("id", "_id", "question_id")
# Keys under which a mapping has its answers: Search-R1's gold, TriviaQA's, SQuAD's
_ANSWER_KEYS = ("target", "aliases", "value", "text")


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Column names of a file; None tries the usual names.

    Args:
        question, answers, id: names of columns.
        keep: further columns, copied into ``extra_info``.
    """

    question: str | None = None
    answers: str | None = None
    id: str | None = None
    keep: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its accepted answers.

    Args:
        text: empty where the row has only `prompt`.
        answers: at least one.
        id: of the file; empty where it has none.
        source: ``data_source`` of the file; empty where it has none.
        prompt: chat messages of the file, if it has some.
        extra: the kept columns.
    """

    text: str
    answers: tuple[str, ...]
    id: str = ""
    source: str = ""
    prompt: tuple[Message, ...] = ()
    extra: dict[str, Any] = {}


def flatten_squad(row: Mapping[str, Any], *, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """One row for each question of a SQuAD file, with its place; any other row unchanged.

    SQuAD nests: ``data`` holds articles, these ``paragraphs``, and these ``qas``. A question's row
    gets the article's title and the paragraph's text.

    >>> article = {"title": "Peru", "paragraphs": [{"context": "...", "qas": [{"question": "?"}]}]}
    >>> [row for _, row in flatten_squad({"data": [article]}, where="f.json")]
    [{'title': 'Peru', 'context': '...', 'question': '?'}]
    """
    articles = row.get("data") if _all_have(row.get("data"), "paragraphs") else [row]
    for at, article in enumerate(articles or ()):
        paragraphs = article.get("paragraphs")
        if not _all_have(paragraphs, "qas"):
            yield where, article
            continue
        named = {"title": article["title"]} if "title" in article else {}
        for paragraph in paragraphs:
            above = named | {k: v for k, v in paragraph.items() if k == "context"}
            for asked in paragraph["qas"]:
                place = f"{where}, article {at + 1}, question {asked.get('id', '')}".rstrip()
                yield place, above | asked


def _all_have(items: Any, key: str) -> bool:
    return (
        isinstance(items, list)
        and bool(items)
        and all(isinstance(item, Mapping) and isinstance(item.get(key), list) for item in items)
    )


def question_in(row: Mapping[str, Any], columns: Columns, *, where: str) -> Question:
    """The question of a row in the manner of Search-R1, FlashRAG, HotpotQA, NQ, TriviaQA or SQuAD.

    Args:
        row: with columns such as ``question`` and ``golden_answers`` (or ``answer``, or
            ``reward_model.ground_truth``).
        columns: names of the columns.
        where: the row's name in errors.

    Raises:
        DataError: there is no question or no answer, or a column has another type; the message
            names the column and its value.

    >>> row = {"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}
    >>> question_in(row, Columns(), where="row 1").answers
    ('Jane Austen',)
    """
    given = row.get("extra_info")
    nested = given if isinstance(given, Mapping) else {}
    prompt = row.get("prompt")
    messages = tuple(prompt) if isinstance(prompt, list) else ()
    key, text = _column_value(row, columns.question, _QUESTION, where=where, what="question")
    if text is None and columns.question is None:
        key, text = "extra_info.question", nested.get("question")
    if text is None and not messages:
        raise _missing_error(row, "question", columns.question, _QUESTION, where)
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise DataError(
            f"{where}: the question under {key!r} is {_short(text)}, and has to be text"
        )
    return Question(
        text=(text or "").strip(),
        answers=_answers_in(row, columns, where),
        id=_id_in(row, columns, where),
        source=_source_in(row, where),
        prompt=messages,
        extra={name: _kept_value(row, name, where) for name in columns.keep},
    )


def training_row(
    question: Question, *, index: int, source: str, instructions: Instructions, where: str = ""
) -> dict[str, Any]:
    """The row for training, as `zerowait.verl.dataset.RewardDataset` and verl's data set read it.

    Args:
        question: the question.
        index: the row's number, unique in its file.
        source: ``data_source`` where the question has none of its own.
        instructions: ``search`` uses `search_prompt`, ``none`` the question alone, ``keep`` the
            file's own messages.
        where: the row's name in errors.

    Raises:
        DataError: the wanted prompt cannot be made from what the row has.
    """
    if instructions == "keep" and not question.prompt:
        raise DataError(f"{where}: has no chat messages under 'prompt' to keep")
    if instructions == "keep":
        _check_messages(question.prompt, where)
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
    key, found = _column_value(row, columns.answers, _ANSWERS, where=where, what="answers")
    if found is None and columns.answers is None:
        reward_model = row.get("reward_model")
        key = "reward_model.ground_truth"
        found = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    if found is None:
        raise _missing_error(row, "answer", columns.answers, _ANSWERS, where)
    texts = _texts(found, f"{where}: the answer under {key!r}")
    answers = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not answers:
        raise DataError(f"{where}: no answer can be read from {key!r}, which is {_short(found)}")
    return answers


def _texts(found: Any, where: str) -> list[str]:
    """All texts in a nested value; none for a missing one.

    Raises:
        DataError: a value is no text and no number.
    """
    if isinstance(found, str):
        return [found]
    if _is_missing(found):
        return []
    if isinstance(found, int | float) and not isinstance(found, bool):
        return [_number(found, where)]
    if isinstance(found, Mapping):
        known = [name for name in _ANSWER_KEYS if name in found]
        if found and not known:
            raise DataError(
                f"{where} is {_short(found)}, which has none of {', '.join(_ANSWER_KEYS)}"
                f"{did_you_mean(_ANSWER_KEYS[0], found)}"
            )
        return [text for name in known for text in _texts(found[name], f"{where}[{name!r}]")]
    if isinstance(found, Sequence):
        return [text for at, item in enumerate(found) for text in _texts(item, f"{where}[{at}]")]
    hint = ": write 'yes' or 'no'" if isinstance(found, bool) else ""
    raise DataError(f"{where} is {_short(found)}, and has to be text{hint}")


def _number(found: float, where: str) -> str:
    """The number as people write it: 2 for 2.0, which a table makes of an integer beside gaps."""
    if isinstance(found, float) and not math.isfinite(found):
        raise DataError(f"{where} is {found}, which is no answer")
    whole = isinstance(found, float) and found.is_integer() and abs(found) < _WHOLE_BELOW
    return str(int(found)) if whole else str(found)


def _is_missing(found: Any) -> bool:
    return found is None or (isinstance(found, float) and math.isnan(found))


def _check_messages(prompt: Sequence[Any], where: str) -> None:
    for at, message in enumerate(prompt):
        fields = message if isinstance(message, Mapping) else {}
        if not isinstance(fields.get("role"), str) or fields.get("content") is None:
            raise DataError(
                f"{where}: 'prompt'[{at}] is {_short(message)}, and has to be a chat message such "
                'as {"role": "user", "content": "..."}'
            )


def _id_in(row: Mapping[str, Any], columns: Columns, where: str) -> str:
    key, found = _column_value(row, columns.id, _ID, where=where, what="id")
    if found is None:
        return ""
    if not isinstance(found, str | int):
        raise DataError(f"{where}: the id under {key!r} is {_short(found)}, and has to be text")
    return str(found)


def _source_in(row: Mapping[str, Any], where: str) -> str:
    source = row.get("data_source")
    if _is_missing(source):
        return ""
    if not isinstance(source, str):
        raise DataError(f"{where}: 'data_source' is {_short(source)}, and has to be text")
    return source


def _column_value(
    row: Mapping[str, Any], named: str | None, usual: Sequence[str], *, where: str, what: str
) -> tuple[str, Any]:
    """Name and value of the first usual column that has a value; the value is None without any.

    Args:
        row: of the file.
        named: the column to use instead of the usual ones.
        usual: names to try.
        where: the row's name in errors.
        what: what the column should hold, for errors.

    Raises:
        DataError: there is no column `named`.
    """
    if named is not None and named not in row:
        hint = did_you_mean(named, row)
        raise DataError(f"{where}: has no column {named!r} for the {what}{hint}")
    names = usual if named is None else (named,)
    return next(((n, row[n]) for n in names if not _is_missing(row.get(n))), (names[0], None))


def _kept_value(row: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise DataError(f"{where}: has no column {name!r} to keep{did_you_mean(name, row)}")
    return row[name]


def _missing_error(
    row: Mapping[str, Any], what: str, named: str | None, usual: Sequence[str], where: str
) -> DataError:
    empty = next((name for name in ((named,) if named else usual) if name in row), None)
    if empty is not None:
        return DataError(f"{where}: its {what} under {empty!r} is missing ({row[empty]})")
    option = "--question" if what == "question" else "--answers"
    near = (get_close_matches(name, list(row), n=1) for name in usual)
    found = next((match[0] for match in near if match), None)
    hint = f"; did you mean {found!r}?" if found else did_you_mean(usual[0], row)
    return DataError(
        f"{where}: has no {what} under {', '.join(usual)}: name its column with {option}{hint}"
    )


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
