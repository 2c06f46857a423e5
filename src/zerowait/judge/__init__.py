"""The judge's side of a reward, without the network: sample to request, reply to outcome."""

from zerowait.judge.apis import in_words_of
from zerowait.judge.comparing.lineup import Lineup, lineup, shared_texts
from zerowait.judge.comparing.schedule import by_content, pairings, windows
from zerowait.judge.comparing.standings import Match, Rank, ranked_matches, standings
from zerowait.judge.monitor import monitored, reasoning, seen_by, truth_of
from zerowait.judge.parsing.criteria import weighted
from zerowait.judge.parsing.form import SingleVerdict, VerdictForm
from zerowait.judge.parsing.verdict import parse, reply_format, to_unit, to_unit_range
from zerowait.judge.pooling import empanelled, measure, pooled, voted
from zerowait.judge.procedure import JudgeQuestion, Procedure, check_majority, procedure_for
from zerowait.judge.reply import (
    ServedModel,
    decode_reply,
    read_completion,
    read_reply,
    read_with,
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
from zerowait.judge.served import ModelWatch

__all__ = [
    "CONVERSATION_ALONE",
    "ChatRequest",
    "JudgeQuestion",
    "Lineup",
    "Match",
    "ModelWatch",
    "Procedure",
    "Rank",
    "Rubric",
    "ServedModel",
    "SingleVerdict",
    "VerdictForm",
    "by_content",
    "check_judge",
    "check_majority",
    "decode_reply",
    "empanelled",
    "extra_text",
    "in_words_of",
    "lineup",
    "load_rubric",
    "measure",
    "monitored",
    "pairings",
    "parse",
    "pooled",
    "procedure_for",
    "ranked_matches",
    "read_completion",
    "read_reply",
    "read_with",
    "reasoning",
    "reply_format",
    "request_for",
    "request_key",
    "request_of",
    "seen_by",
    "shared_texts",
    "standings",
    "texts_for",
    "to_unit",
    "to_unit_range",
    "truth_of",
    "voted",
    "wants_more_tokens",
    "weighted",
    "well_formed",
    "windows",
]
