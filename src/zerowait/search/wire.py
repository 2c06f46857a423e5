"""The wire of ``POST /retrieve``, as Search-R1 has it: requests out, passages in. Pure.

Reference:
    Jin et al. 2025, Search-R1 (arXiv:2503.09516), ``search_r1/search/retrieval_server.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zerowait.errors import DataError
from zerowait.search.passages import Passage

_QUOTED: Final = 200


class RetrieveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``/retrieve`` is asked.

    Args:
        queries: one list of passages comes back for each.
        topk: how many; None leaves it to the server.
        return_scores: whether each passage comes with its score.
    """

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def request_body(queries: Sequence[str], topk: int) -> bytes:
    """The body that asks for `topk` passages with scores.

    Characters that UTF-8 cannot carry are asked for as question marks.

    >>> request_body(["who"], 3)
    b'{"queries":["who"],"topk":3,"return_scores":true}'
    """
    return msgspec.json.encode(
        RetrieveRequest(
            queries=[query.encode("utf-8", "replace").decode() for query in queries],
            topk=topk,
            return_scores=True,
        )
    )


def reply_body(results: Sequence[Sequence[Passage]], *, scores: bool) -> bytes:
    r"""The body that answers a request: with scores, each document is wrapped beside its own.

    >>> reply_body([[Passage("T\nx", "7", 0.5)]], scores=False)
    b'{"result":[[{"id":"7","contents":"T\\nx"}]]}'
    """
    return msgspec.json.encode({"result": [[_said(p, scores) for p in found] for found in results]})


def passages_in(body: bytes, *, queries: int) -> list[list[Passage]]:
    """The passages for each of so many queries, whichever way the server writes them.

    Raises:
        DataError: the body is not what ``/retrieve`` answers; says how.

    >>> passages_in(b'{"result": [[{"document": {"contents": "T"}, "score": 1}]]}', queries=1)
    [[Passage(contents='T', id='', score=1.0)]]
    """
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DataError("the retriever's reply is not JSON") from None
    except RecursionError:
        raise DataError("the retriever's reply is nested too deeply") from None
    result = reply.get("result") if isinstance(reply, dict) else None
    if not isinstance(result, list):
        raise DataError("the retriever's reply has no list 'result'")
    if len(result) != queries:
        raise DataError(f"the retriever answered {len(result)} of {queries} queries")
    return [[_read(item) for item in _listed(found)] for found in result]


def reply_complaint(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """What a reply that is no success says, for people.

    >>> complaint(400, {}, b'{"error": "topk must be from 1 to 1000, not 0"}')
    'status 400: topk must be from 1 to 1000, not 0'
    >>> complaint(404, {}, b"")
    'status 404: nothing is served at this address; check retriever.url'
    """
    if 300 <= status < 400:
        where = headers.get("location", "another address")
        return f"status {status}: it points to {where}; set retriever.url to where it leads"
    if status == 404:
        return "status 404: nothing is served at this address; check retriever.url"
    return f"status {status}: {_words(body)}"


def _words(body: bytes) -> str:
    """The error that a server names under ``error`` or ``detail``, else the body's beginning."""
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        reply = None
    named = (reply.get("error") or reply.get("detail")) if isinstance(reply, dict) else None
    text = str(named) if named else body[:_QUOTED].decode("utf-8", "replace")
    return " ".join(text.split())[:_QUOTED] or "no further words"


def _said(passage: Passage, scores: bool) -> dict[str, Any]:  # noqa: FBT001 - private
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scores else document


def _listed(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise DataError("the retriever's reply has a result that is not a list of documents")
    return found


def _read(item: Any) -> Passage:
    document = item.get("document", item) if isinstance(item, dict) else None
    contents = document.get("contents") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(contents, str):
        raise DataError("the retriever's reply has a document without 'contents'")
    return Passage(contents, str(document.get("id", "")), _number(item.get("score")))


def _number(score: Any) -> float | None:
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    try:
        return float(score)
    except OverflowError:  # JSON's integers have no end
        return None
