"""The judge's side of a reward, without the network: sample to request, reply to outcome."""

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
from zerowait.judge.request import ChatRequest, check_judge, request_for, request_key
from zerowait.judge.rubric import Rubric, load_rubric
from zerowait.judge.served import Served
from zerowait.judge.verdict import normalise, parse, reply_format, to_unit

__all__ = [
    "ChatRequest",
    "Form",
    "OneVerdict",
    "Origin",
    "Procedure",
    "Question",
    "Rubric",
    "Served",
    "Usage",
    "check_judge",
    "check_majority",
    "empanelled",
    "load_rubric",
    "measure",
    "monitored",
    "normalise",
    "parse",
    "pooled",
    "procedure_for",
    "read_reply",
    "read_with",
    "reasoning",
    "reply_format",
    "reply_origin",
    "reply_usage",
    "request_for",
    "request_key",
    "seen_by",
    "to_unit",
    "truth_of",
    "voted",
    "wants_more_tokens",
    "weighted",
    "well_formed",
]
