"""Wire format of ``POST /retrieve`` in the form of Search-R1: request and reply bodies.

Reference:
    Jin et al. 2025, Search-R1 (arXiv:2503.09516), ``search_r1/search/retrieval_server.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zerowait.errors import DataError
from zerowait.search.passages import Passage

_MOST_QUOTED_CHARS: Final = 200


class RetrieveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request.

    Args:
        queries: the reply has one list of passages for each.
        topk: passages for each query; None takes the server's default.
        return_scores: whether each passage has its score.
    """

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def request_body(queries: Sequence[str], topk: int) -> bytes:
    """The body of a request for `topk` passages with scores.

    Lone surrogates, which UTF-8 cannot encode, become question marks.

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
    r"""The body of a reply; with scores, each item is ``{"document": ..., "score": ...}``.

    >>> reply_body([[Passage("T\nx", "7", 0.5)]], scores=False)
    b'{"result":[[{"id":"7","contents":"T\\nx"}]]}'
    """
    return msgspec.json.encode(
        {"result": [[_document_json(p, scores) for p in found] for found in results]}
    )


def passages_in(body: bytes, *, queries: int) -> list[list[Passage]]:
    """The passages for each query, with or without scores.

    Args:
        body: of the reply.
        queries: number of queries in the request.

    Raises:
        DataError: the body is no reply of ``/retrieve``; the message says why.

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
    return [[_parse_document(item) for item in _checked_list(found)] for found in result]


def error_text(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """One line for people about a reply with an error status.

    Args:
        status: of HTTP.
        headers: of the reply.
        body: of the reply.

    >>> error_text(400, {}, b'{"error": "topk must be from 1 to 1000, not 0"}')
    'status 400: topk must be from 1 to 1000, not 0'
    >>> error_text(404, {}, b"")
    'status 404: nothing is served at this address; check retriever.url'
    """
    if 300 <= status < 400:
        where = headers.get("location", "another address")
        return f"status {status}: it redirects to {where}; set retriever.url to that address"
    if status == 404:
        return "status 404: nothing is served at this address; check retriever.url"
    return f"status {status}: {_error_message(body)}"


def _error_message(body: bytes) -> str:
    """The text under ``error`` or ``detail``, else the beginning of the body."""
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        reply = None
    named = (reply.get("error") or reply.get("detail")) if isinstance(reply, dict) else None
    text = str(named) if named else body[:_MOST_QUOTED_CHARS].decode("utf-8", "replace")
    return " ".join(text.split())[:_MOST_QUOTED_CHARS] or "no further words"


def _document_json(passage: Passage, scores: bool) -> dict[str, Any]:  # noqa: FBT001 - private
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scores else document


def _checked_list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise DataError("the retriever's reply has a result that is not a list of documents")
    return found


def _parse_document(item: Any) -> Passage:
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
    except OverflowError:  # JSON's integers have no limit
        return None
