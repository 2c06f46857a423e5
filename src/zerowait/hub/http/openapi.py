"""The OpenAPI document of the HTTP service, made of the types that it reads and writes."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

import zerowait
from zerowait.engine import Stats
from zerowait.engine.monitor.prometheus import CONTENT_TYPE
from zerowait.hub.http import wire
from zerowait.types import Reward, Sample

NDJSON: Final = "application/x-ndjson"
_JSON: Final = "application/json"
_TYPES: Final = (
    Sample,
    Reward,
    Stats,
    wire.OpenRlhfRequest,
    wire.OpenRlhfReply,
    wire.Health,
    wire.ErrorBody,
)
_ERRORS: Final = {
    400: "The request is wrong, or its body cannot be read.",
    401: "No token, or another one.",
    403: "A browser asks a service that has no token.",
    408: "The body did not arrive in time.",
    413: "The body is too long.",
    415: "The body's content type is another one.",
    417: "Expect asks for more than 100-continue.",
    500: "The service failed; its log says more.",
    502: "A judgement failed, and there is no number for it.",
    503: "The service is ending.",
    504: "Not done in time; the same request again goes on where it was.",
}


@cache
def openapi_document() -> bytes:
    """The document as JSON."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        schema["description"] = str(schema.get("description", "")).partition("\n\n")[0]
    schemas["Sample"]["additionalProperties"] = False
    for field in ("group_size", "response_tokens"):
        counts: Any = schemas["Sample"]["properties"][field]["anyOf"][0]
        counts["minimum"] = 1 if field == "group_size" else 0
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "zerowait",
                "version": zerowait.__version__,
                "description": "Rewards of one reward configuration.",
            },
            "paths": _paths(),
            "components": {
                "schemas": schemas,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"token": []}, {}],
        }
    )


def _paths() -> dict[str, Any]:
    sample, reward = _ref("Sample"), _ref("Reward")
    rewards = {"oneOf": [reward, _list_of(reward)]}
    return {
        "/v1/score": {
            "post": {
                "operationId": "score",
                "summary": "The reward of one sample, or those of a list",
                "requestBody": _body(
                    {_JSON: {"oneOf": [sample, _list_of(sample)]}, NDJSON: {"type": "string"}}
                ),
                "responses": _replies({_JSON: rewards, NDJSON: {"type": "string"}}),
            }
        },
        "/get_reward": {
            "post": {
                "operationId": "getReward",
                "summary": "Rewards in the form of OpenRLHF's remote reward model",
                "parameters": [
                    _parameter("data_source", {"type": "string"}),
                    _parameter("split", {"type": "string"}),
                    _parameter("group_size", {"type": "integer", "minimum": 1}),
                ],
                "requestBody": _body({_JSON: _ref("OpenRlhfRequest")}),
                "responses": _replies({_JSON: _ref("OpenRlhfReply")}),
            }
        },
        "/v1/stats": _get("stats", "What happened so far", {_JSON: _ref("Stats")}),
        "/metrics": _get("metrics", "Counters for Prometheus", {CONTENT_TYPE: {"type": "string"}}),
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the service answers requests",
                "security": [],
                "responses": {
                    "200": _reply("It does.", {_JSON: _ref("Health")}),
                    "503": _reply("It is ending.", {_JSON: _ref("Health")}),
                },
            }
        },
    }


def _get(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"operationId": name, "summary": summary, "responses": _replies(content)}}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": s} for kind, s in content.items()}}


def _replies(content: dict[str, Any]) -> dict[str, Any]:
    """The reply of status 200, and those of every error."""
    errors = {str(s): _reply(why, {_JSON: _ref("ErrorBody")}) for s, why in _ERRORS.items()}
    return {"200": _reply("As asked.", content), **errors}


def _reply(description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {kind: {"schema": schema} for kind, schema in content.items()},
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}
