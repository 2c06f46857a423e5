"""The service's OpenAPI document, and requests that are drawn from it."""

import http.client
import json
from contextlib import contextmanager
from urllib.parse import urlsplit

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.engine.portal import Portal
from zerowait.hub.http.openapi import openapi_document
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings

CONFIG = {
    "components": {
        "answer": {"scorer": "contains"},
        "exact": {"scorer": "qa_em"},
        "form": {"scorer": "format"},
    }
}
OPENAPI = json.loads(openapi_document())
LINES = "application/x-ndjson"
POSTS = ["/v1/score", "/get_reward"]


def schema_of(content):
    """A JSON schema that stands alone."""
    return content["application/json"]["schema"] | {"components": OPENAPI["components"]}


def body_schema(path):
    return schema_of(OPENAPI["paths"][path]["post"]["requestBody"]["content"])


@contextmanager
def service(config=CONFIG, **settings):
    with Portal("service") as portal:
        running = serving(config, ServiceSettings(port=0, on_abstain=-1.0, **settings))
        url, _ = portal.call(running.__aenter__)
        try:
            yield urlsplit(url).netloc
        finally:
            portal.call(lambda: running.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def ask():
    """Sends a body to a path of a running service; status and decoded reply."""
    with service() as address:

        def asked(path, body=None, kind="application/json"):
            connection = http.client.HTTPConnection(address, timeout=60)
            headers = {"Content-Type": kind}
            connection.request("GET" if body is None else "POST", path, body, headers)
            reply = connection.getresponse()
            text = reply.read()
            connection.close()
            lines = text.splitlines() if reply.headers["Content-Type"] == LINES else [text]
            decoded = [json.loads(line) for line in lines]
            return reply.status, decoded if lines != [text] else decoded[0]

        yield asked


def is_as_documented(path, status, reply, method="post"):
    """Whether the document has this reply, which for an error is one line that says what."""
    responses = OPENAPI["paths"][path][method]["responses"]
    jsonschema.validate(reply, schema_of(responses[str(status)]["content"]))
    if status != 200:
        assert reply["error"]["message"]
        assert "\n" not in reply["error"]["message"]
    return status


def test_the_document_is_served_and_names_what_the_service_answers(ask):
    assert ask("/openapi.json") == (200, OPENAPI)
    for path in ("/v1/stats", "/healthz"):
        status, reply = ask(path)
        assert is_as_documented(path, status, reply, "get") == 200
    assert OPENAPI["components"]["schemas"]["Sample"]["required"] == ["prompt", "response"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


SIMPLE = {"null": st.none(), "string": st.text(max_size=20)}


def from_schema(schema):
    """What a schema of the document allows, as far as the document's schemas go."""
    if "$ref" in schema:
        return from_schema(OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if several := schema.get("anyOf", schema.get("oneOf")):
        return st.one_of(*map(from_schema, several))
    kind = schema.get("type")
    if kind == "integer":
        return st.integers(min_value=schema.get("minimum"))
    if kind == "array":
        return st.lists(from_schema(schema.get("items", {})), max_size=3)
    return from_object(schema) if kind == "object" else SIMPLE[kind] if kind else JSON


def from_object(schema):
    parts = {name: from_schema(part) for name, part in schema.get("properties", {}).items()}
    if not parts:
        return st.dictionaries(st.text(max_size=8), JSON, max_size=3)
    needed = {name: parts.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional=parts)


@st.composite
def nearly_right(draw, schema):
    """A body that the schema allows, with one value anywhere in it that it may not."""
    tree = [draw(from_schema(schema))]
    places = [(tree, 0)]
    for holder, key in places:
        held = holder[key]
        keys = (
            held if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
        )
        places += [(held, each) for each in keys]
    holder, key = draw(st.sampled_from(places))
    holder[key] = draw(JSON)
    return tree[0]


@pytest.mark.parametrize("path", POSTS)
@settings(max_examples=30)
@given(data=st.data())
def test_what_the_document_allows_is_answered_as_it_says(ask, path, data):
    body = data.draw(from_schema(body_schema(path)))
    status, reply = ask(path, json.dumps(body))
    assert is_as_documented(path, status, reply) in (200, 400)


@pytest.mark.parametrize("path", POSTS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_it_does_not_allow_is_a_clear_error_and_never_the_services_own(ask, path, data):
    body = data.draw(nearly_right(body_schema(path)))
    status, reply = ask(path, json.dumps(body))
    assert is_as_documented(path, status, reply) in (200, 400)


@pytest.mark.parametrize("path", POSTS)
@settings(max_examples=30)
@given(
    body=st.binary(max_size=40) | st.text(max_size=40).map(str.encode),
    kind=st.sampled_from(["application/json", LINES, "text/plain"]),
)
def test_bytes_that_are_no_request_are_refused(ask, path, body, kind):
    status, reply = ask(path, body, kind)
    if status == 200:  # lines, of which there are none
        assert (path, reply, body.strip()) == ("/v1/score", [], b"")
    else:
        assert is_as_documented(path, status, reply) in (400, 415)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": 7, "response": "r"}, "prompt"),
        ({"prompt": "p"}, "response"),
        ({"prompt": "p", "response": ["r"]}, "response"),
        ({"prompt": "p", "response": "r", "step": "one"}, "step"),
        ({"prompt": "p", "response": "r", "group_size": 0}, "group_size"),
        ([{"prompt": "p", "response": "r"}, {"prompt": "p", "respons": "r"}], "respons"),
    ],
)
def test_an_error_names_the_field(ask, body, field):
    status, reply = ask("/v1/score", json.dumps(body))
    assert status == 400
    assert field in reply["error"]["message"]
