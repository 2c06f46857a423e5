"""Whether the search agent's retriever answers, before any model is loaded.

A policy whose searches all fail learns not to search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zerowait.errors import ConfigError
from zerowait.search import Failed, Retriever, RetrieverSettings
from zerowait.verl.recipe import Recipe

_PATIENCE_S: Final = 5.0
_QUERY: Final = "test"


def check_retriever(recipe: Recipe, overrides: Mapping[str, Any]) -> None:
    """Raise a ConfigError when a recipe's agent searches, and the retriever answers no query.

    On a cluster that runs already the rollouts are elsewhere, and so may be the retriever.
    """
    search = recipe.search
    if search is None or not (search.do_search and search.max_turns):
        return
    if recipe.resources.ray_address is not None:
        return
    url = overrides.get("search.retriever.url", search.retriever.url)
    patience_s = min(_PATIENCE_S, search.retriever.deadline_s)
    try:
        settings = msgspec.structs.replace(
            search.retriever, url=str(url), deadline_s=patience_s, timeout_s=patience_s
        )
    except ValueError as error:
        raise ConfigError(f"search.retriever: {error}") from None
    found = asyncio.run(_asked(settings))
    if isinstance(found, Failed):
        raise ConfigError(
            f"search.retriever.url {url} answers no search: {found.why}; "
            "zerowait retriever serve INDEX starts one"
        )


async def _asked(settings: RetrieverSettings) -> Any:
    async with Retriever(settings) as retriever:
        [found] = await retriever.find([_QUERY])
        return found
