"""The judge's side of a reward, without the network: sample to request, reply to outcome."""

from zerowait.judge.apis import in_words_of
from zerowait.judge.compare import Lineup, lineup, shared_texts
from zerowait.judge.criteria import weighted
from zerowait.judge.form import Form, OneVerdict
from zerowait.judge.monitor import monitored, reasoning, seen_by, truth_of
from zerowait.judge.pooling import empanelled, measure, pooled, voted
from zerowait.judge.procedure import Procedure, Question, check_majority, procedure_for
from zerowait.judge.reply import (
    Origin,
    Usage,
    read_reply,
    read_with,
    reply_origin,
    reply_usage,
    wants_more_tokens,
    well_formed,
)
from zerowait.judge.request import (
    ChatRequest,
    check_judge,
    extra_text,
    request_for,
    request_key,
    request_of,
    texts_for,
)
from zerowait.judge.reward_model import CONVERSATION_ALONE
from zerowait.judge.rubric import Rubric, load_rubric
from zerowait.judge.schedule import by_content, pairings, windows
from zerowait.judge.served import Served
from zerowait.judge.standings import Match, Standing, ranked_matches, standings
from zerowait.judge.verdict import normalise, parse, reply_format, to_unit

__all__ = [
    "CONVERSATION_ALONE",
    "ChatRequest",
    "Form",
    "Lineup",
    "Match",
    "OneVerdict",
    "Origin",
    "Procedure",
    "Question",
    "Rubric",
    "Served",
    "Standing",
    "Usage",
    "by_content",
    "check_judge",
    "check_majority",
    "empanelled",
    "extra_text",
    "in_words_of",
    "lineup",
    "load_rubric",
    "measure",
    "monitored",
    "normalise",
    "pairings",
    "parse",
    "pooled",
    "procedure_for",
    "ranked_matches",
    "read_reply",
    "read_with",
    "reasoning",
    "reply_format",
    "reply_origin",
    "reply_usage",
    "request_for",
    "request_key",
    "request_of",
    "seen_by",
    "shared_texts",
    "standings",
    "texts_for",
    "to_unit",
    "truth_of",
    "voted",
    "wants_more_tokens",
    "weighted",
    "well_formed",
    "windows",
]
