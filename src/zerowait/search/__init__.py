"""A search agent in the manner of Search-R1, trained on exactly the tokens that were sampled.

Reference:
    Jin et al. 2025, Search-R1 (arXiv:2503.09516).
"""

from zerowait.search.actions import STOP_TEXTS, Action, action_in
from zerowait.search.episode import Author, Episode, Segment, StopReason
from zerowait.search.loop import Generate, Retrieve, Searcher, Turn
from zerowait.search.observation import Tokens
from zerowait.search.passages import Failed, Passage
from zerowait.search.prompts import search_messages, search_prompt
from zerowait.search.retriever import Retriever, RetrieverStats
from zerowait.search.settings import RetrieverSettings, SearchSettings, settings_from

__all__ = [
    "STOP_TEXTS",
    "Action",
    "Author",
    "Episode",
    "Failed",
    "Generate",
    "Passage",
    "Retrieve",
    "Retriever",
    "RetrieverSettings",
    "RetrieverStats",
    "SearchSettings",
    "Searcher",
    "Segment",
    "StopReason",
    "Tokens",
    "Turn",
    "action_in",
    "search_messages",
    "search_prompt",
    "settings_from",
]
