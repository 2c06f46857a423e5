"""Structured output at the fake judge: refused in the words of a provider, or held to its rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from zerowait.judge import is_strict
from zerowait.testing.replies import FakeReply
from zerowait.testing.script import Structured

_NOT_STRICT: Final = (
    "Invalid schema for response_format 'verdict': In context=(), 'additionalProperties' is "
    "required to be supplied and to be false."
)
_REFUSALS: Final[Mapping[str, tuple[int, Any]]] = {
    "deepseek": (
        400,
        {
            "error": {
                "message": "This response_format type is unavailable now",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_request_error",
            }
        },
    ),
    "gemini": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "Invalid value at 'generation_config.response_schema.properties[0]"
                    ".value.enum[0]' (TYPE_STRING), 1",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": 'response_format type must be one of "text" or "json_object", but got: '
                "json_schema",
                "type": "invalid_request_error",
            }
        },
    ),
    "ollama": (
        500,
        {
            "error": {
                "message": "invalid JSON schema in format",
                "type": "api_error",
                "param": None,
                "code": None,
            }
        },
    ),
    "openai": (
        400,
        {
            "error": {
                "message": "Invalid parameter: 'response_format' of type 'json_schema' is not "
                "supported with this model. Learn more about supported models at the Structured "
                "Outputs guide.",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
    ),
    "sglang": (
        400,
        {
            "object": "error",
            "message": "Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not "
            "supported when the server is launched with --grammar-backend none",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "vllm": (
        400,
        {
            "object": "error",
            "message": "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
            "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}]",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "xgrammar": (
        400,
        {
            "error": {
                "message": "The provided JSON schema contains features not supported by xgrammar.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
    ),
}


def format_refusal(structured: Structured, body: Mapping[str, Any]) -> FakeReply | None:
    """The rejection of a request for structured output; None where it is not rejected.

    Args:
        structured: what the judge does with such requests.
        body: of the request.
    """
    form = body.get("response_format")
    form = form if isinstance(form, Mapping) else {}
    inner = form.get("json_schema")
    if form.get("type") != "json_schema" or structured == "ignored":
        return None
    if structured != "enforced":
        status, error = _REFUSALS[structured]
        return FakeReply(body=msgspec.json.encode(error), status=status)
    if not isinstance(inner, Mapping) or inner.get("strict") is not True:
        return None
    if _is_strict(msgspec.json.encode(inner.get("schema"))):
        return None
    error = {
        "message": _NOT_STRICT,
        "type": "invalid_request_error",
        "param": "response_format",
        "code": None,
    }
    return FakeReply(body=msgspec.json.encode({"error": error}), status=400)


@lru_cache(64)  # all requests of a judge have one schema, or a few
def _is_strict(encoded: bytes) -> bool:
    return is_strict(msgspec.json.decode(encoded))
