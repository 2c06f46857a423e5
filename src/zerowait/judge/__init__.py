"""The judge's side of a reward, without the network: sample to request, reply to outcome."""

from zerowait.judge.reply import (
    Origin,
    Usage,
    read_reply,
    reply_origin,
    reply_usage,
    wants_more_tokens,
    well_formed,
)
from zerowait.judge.request import ChatRequest, check_judge, request_for, request_key
from zerowait.judge.rubric import Rubric, load_rubric
from zerowait.judge.served import Served
from zerowait.judge.verdict import normalise, parse, reply_format

__all__ = [
    "ChatRequest",
    "Origin",
    "Rubric",
    "Served",
    "Usage",
    "check_judge",
    "load_rubric",
    "normalise",
    "parse",
    "read_reply",
    "reply_format",
    "reply_origin",
    "reply_usage",
    "request_for",
    "request_key",
    "wants_more_tokens",
    "well_formed",
]
