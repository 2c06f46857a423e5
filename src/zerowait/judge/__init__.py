"""Judges without the network: builds requests from samples and reads outcomes from replies."""

from zerowait.judge.apis import body_for_api
from zerowait.judge.comparing.lineup import Lineup, lineup, shared_texts
from zerowait.judge.comparing.ranking import Match, Rank, rank_responses, ranked_matches
from zerowait.judge.comparing.schedule import by_content, pairings, windows
from zerowait.judge.model_change import ModelChangeDetector
from zerowait.judge.monitor import monitored, reasoning, seen_by, truth_of
from zerowait.judge.parsing.criteria import weighted
from zerowait.judge.parsing.form import SingleVerdict, VerdictForm
from zerowait.judge.parsing.schema import is_strict
from zerowait.judge.parsing.structured import StructuredVerdict
from zerowait.judge.parsing.verdict import parse, reply_format, to_unit, to_unit_range
from zerowait.judge.pooling import measure, panel_outcome, pooled, votes_outcome
from zerowait.judge.procedure import JudgeQuestion, Procedure, check_majority, procedure_for
from zerowait.judge.recorded_request import RequestPattern, decoded_request
from zerowait.judge.reply import (
    ServedModel,
    decode_reply,
    read_completion,
    read_reply,
)
from zerowait.judge.request import (
    CUT_CHARS,
    ChatRequest,
    SampleTexts,
    check_judge,
    extra_text,
    own_constraint,
    request_for,
    request_key,
    request_of,
    texts_for,
)
from zerowait.judge.reward_model import CONVERSATION_ALONE
from zerowait.judge.row_rubric import (
    RowCriterion,
    row_calls,
    row_rubric,
    rubric_outcome,
    whole_outcome,
    whole_question,
)
from zerowait.judge.rubric import Rubric, load_rubric

__all__ = [
    "CONVERSATION_ALONE",
    "CUT_CHARS",
    "ChatRequest",
    "JudgeQuestion",
    "Lineup",
    "Match",
    "ModelChangeDetector",
    "Procedure",
    "Rank",
    "RequestPattern",
    "RowCriterion",
    "Rubric",
    "SampleTexts",
    "ServedModel",
    "SingleVerdict",
    "StructuredVerdict",
    "VerdictForm",
    "body_for_api",
    "by_content",
    "check_judge",
    "check_majority",
    "decode_reply",
    "decoded_request",
    "extra_text",
    "is_strict",
    "lineup",
    "load_rubric",
    "measure",
    "monitored",
    "own_constraint",
    "pairings",
    "panel_outcome",
    "parse",
    "pooled",
    "procedure_for",
    "rank_responses",
    "ranked_matches",
    "read_completion",
    "read_reply",
    "reasoning",
    "reply_format",
    "request_for",
    "request_key",
    "request_of",
    "row_calls",
    "row_rubric",
    "rubric_outcome",
    "seen_by",
    "shared_texts",
    "texts_for",
    "to_unit",
    "to_unit_range",
    "truth_of",
    "votes_outcome",
    "weighted",
    "whole_outcome",
    "whole_question",
    "windows",
]
