"""Documents of published corpora and data sets, in the one form that the retriever indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from zerowait.errors import DataError, did_you_mean

_TEXT = ("text", "contents", "content", "passage", "extract")


class Document(msgspec.Struct, frozen=True):
    """A title and a text."""

    title: str
    text: str

    @property
    def contents(self) -> str:
        r"""Both as a corpus has them: the title is the first line.

        >>> Document("Lima", "Lima is in Peru.").contents
        'Lima\nLima is in Peru.'
        """
        return f"{' '.join(self.title.split())}\n{self.text.strip()}"


def documents_in(row: Mapping[str, Any], *, where: str) -> Iterator[Document]:
    r"""The documents of one row.

    A row is a passage (``title`` and ``text``, or Search-R1's ``contents``), or a question of
    HotpotQA, 2WikiMultihopQA or MuSiQue with its paragraphs, in the form of the original files or
    of the hub's.

    Args:
        row: of the file.
        where: how errors call it.

    Raises:
        DataError: there is no text in it; names what the row has instead.

    >>> row = {"context": [["Lima", ["Lima is in Peru.", " It is large."]]]}
    >>> [document.contents for document in documents_in(row, where="row 1")]
    ['Lima\nLima is in Peru. It is large.']
    """
    paragraphs = row.get("context", row.get("paragraphs"))
    if paragraphs is not None:
        yield from _paragraphs(paragraphs, where)
        return
    name = next((name for name in _TEXT if isinstance(row.get(name), str)), None)
    if name is None or not row[name].strip():
        hint = did_you_mean(_TEXT[0], row)
        raise DataError(
            f"{where}: is no document: a row has 'title' and 'text', 'contents', or the "
            f"'context' of a HotpotQA question{hint}"
        )
    title = row.get("title")
    if title is None:
        title, _, text = row[name].strip().partition("\n")
        yield Document(title.strip().strip('"'), text)
    else:
        yield Document(str(title), row[name])


def distinct(documents: Iterable[Document]) -> Iterator[Document]:
    """Each document once, in the order of first appearance."""
    seen: set[int] = set()
    for document in documents:
        key = hash((document.title, document.text))
        if key not in seen:
            seen.add(key)
            yield document


def _paragraphs(paragraphs: Any, where: str) -> Iterator[Document]:
    try:
        if isinstance(paragraphs, Mapping):  # the hub's form: a list of titles, a list of texts
            texts = paragraphs.get("sentences", paragraphs.get("content"))
            pairs = list(zip(paragraphs["title"], texts or (), strict=True))
        else:
            pairs = [_pair(paragraph) for paragraph in paragraphs]
        for title, sentences in pairs:
            text = sentences if isinstance(sentences, str) else "".join(sentences)
            yield Document(str(title), text)
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{where}: 'context' has to be a list of [title, sentences], as in HotpotQA's files, "
            "or {'title': [...], 'sentences': [...]}, as on the hub"
        ) from None


def _pair(paragraph: Any) -> tuple[Any, str | Sequence[str]]:
    if isinstance(paragraph, Mapping):  # MuSiQue
        return paragraph["title"], paragraph["paragraph_text"]
    title, sentences = paragraph
    return title, sentences
