"""Documents from the rows of published corpora and data sets, in the form the retriever indexes."""

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
        r"""Title and text as a corpus stores them: the title is the first line.

        >>> Document("Lima", "Lima is in Peru.").contents
        'Lima\nLima is in Peru.'
        """
        return f"{' '.join(self.title.split())}\n{self.text.strip()}"


def documents_in(row: Mapping[str, Any], *, where: str) -> Iterator[Document]:
    r"""The documents of one row.

    A row is a passage (``title`` and ``text``, or Search-R1's ``contents``), or a question of
    HotpotQA, 2WikiMultihopQA, MuSiQue or SQuAD with its paragraphs, in the form of the original
    files or as on Hugging Face.

    Args:
        row: of the file.
        where: the row's name in errors.

    Raises:
        DataError: it has no text; the message names the columns it has.

    >>> row = {"context": [["Lima", ["Lima is in Peru.", " It is large."]]]}
    >>> [document.contents for document in documents_in(row, where="row 1")]
    ['Lima\nLima is in Peru. It is large.']
    """
    if isinstance(row.get("context"), str) and isinstance(row.get("title"), str):  # SQuAD
        yield Document(row["title"], row["context"])
        return
    for key in ("context", "paragraphs"):
        if row.get(key) is not None:
            yield from _paragraphs(row[key], f"{where}: {key!r}")
            return
    name = next((name for name in _TEXT if isinstance(row.get(name), str)), None)
    if name is None or not row[name].strip():
        other = name or next((name for name in _TEXT if row.get(name) is not None), None)
        if other is not None:
            raise DataError(f"{where}: {other!r} is {row[other]!r:.60}, and has to be text")
        hint = did_you_mean(_TEXT[0], row)
        raise DataError(
            f"{where}: is no document: a row has 'title' and 'text', 'contents', or the "
            f"'context' of a HotpotQA question{hint}"
        )
    title = row.get("title")
    if title is None:
        title, _, text = row[name].strip().partition("\n")
        yield Document(title.strip().strip('"'), text)
    elif isinstance(title, str | int | float):
        yield Document(str(title), row[name])
    else:
        raise DataError(f"{where}: 'title' is {title!r:.60}, and has to be text")


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
        if isinstance(paragraphs, Mapping):  # as on Hugging Face: a list of titles, a list of texts
            texts = paragraphs.get("sentences", paragraphs.get("content"))
            pairs = list(zip(paragraphs["title"], texts or (), strict=True))
        else:
            pairs = [_pair(paragraph) for paragraph in paragraphs]
        for title, sentences in pairs:
            text = sentences if isinstance(sentences, str) else "".join(sentences)
            yield Document(str(title), text)
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{where} has to be a list of [title, sentences], as in HotpotQA's files, "
            "{'title': [...], 'sentences': [...]}, as on Hugging Face, or a list of "
            "{'title': ..., 'paragraph_text': ...}, as in MuSiQue's"
        ) from None


def _pair(paragraph: Any) -> tuple[Any, str | Sequence[str]]:
    if isinstance(paragraph, Mapping):  # MuSiQue
        return paragraph["title"], paragraph["paragraph_text"]
    title, sentences = paragraph
    return title, sentences
