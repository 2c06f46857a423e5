"""Keys are planted, the real thing runs, and everything it leaves behind is searched for them.

The judge is a real server that quotes all it was sent, in every encoding, in errors and in answers.
"""

import asyncio
import base64
import html
import importlib
import io
import json
import logging
import os
import pickle
import pydoc
import re
import subprocess
import sys
import threading
import traceback
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from aiohttp import web
from rich.console import Console
from rich.scope import render_scope
from rich.traceback import Traceback

import zerowait
from zerowait import ConfigError, Sample
from zerowait.client import HttpTransport, Request, Secret, target
from zerowait.config import load_config
from zerowait.engine import Engine
from zerowait.hub import JobHub

KEY = "sk-planted/Key+0123456789=="
SECRETS = {
    "key": KEY,
    "query": "qu3ry-planted/9+8",
    "header": "h3ader planted-long-value",
    "short": "k3y!",
    "token": "t0ken-planted-in-a-bearer",
}
SCRIPT = (200, 400, 401, 403, 404, 407, 422, 429, 500, 503, 302)
ENCODINGS = {
    "plain": lambda text: text,
    "JSON": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "unicode": lambda text: "".join(f"\\u{ord(char):04X}" for char in text),
    "URL": lambda text: quote(text, safe=""),
    "URL in lower case": lambda text: "".join(f"%{ord(char):02x}" for char in text),
    "URL twice": lambda text: quote(quote(text, safe=""), safe=""),
    "HTML": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 behind 1": lambda text: base64.b64encode(b":" + text.encode()).decode(),
    "base64 behind 2": lambda text: base64.b64encode(b"::" + text.encode()).decode().rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 in a URL": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "hexadecimal": lambda text: text.encode().hex(),
    "spaced": lambda text: " ".join(text) if len(text) > 5 else text,
}


ESCAPE = re.compile(r"\\+(?:u00([0-9a-fA-F]{2})|x([0-9a-fA-F]{2}))")


def found(text):
    """Which secrets are in `text`, and in which form: looked for by other means than the product."""
    seen = {text, unquote(text), unquote(unquote(text)), html.unescape(text)}
    seen |= {ESCAPE.sub(lambda hit: chr(int(hit[1] or hit[2], 16)), each) for each in list(seen)}
    seen |= {each.replace("\\/", "/") for each in list(seen)}
    hits = set()
    for name, secret in SECRETS.items():
        forms = {"as it is": secret, "hexadecimal": secret.encode().hex()}
        if len(secret) > 5:
            forms |= {"spaced": " ".join(secret)}
        for shift in range(3) if len(secret) > 5 else ():
            core = base64.b64encode(b"\0" * shift + secret.encode()).decode().rstrip("=")[4:-1]
            forms[f"base64 {shift}"] = core
            forms[f"base64 {shift} for URLs"] = core.translate({43: "-", 47: "_"})
        hits |= {
            f"{name} {form}"
            for form, needle in forms.items()
            if any(needle in each for each in seen)
        }
    return hits


def test_the_search_itself_finds_every_form():
    for name, encode in ENCODINGS.items():
        assert found(f"words {encode(KEY)} words"), name


@contextmanager
def echoing():
    """A judge that answers with each status in turn, and quotes what it got, encoded in turn."""
    ready, stop = threading.Event(), None
    asked = {"count": 0, "sent": 0}

    async def answer(request):
        nth, asked["count"] = asked["count"], asked["count"] + 1
        encode = list(ENCODINGS.values())[nth // len(SCRIPT) % len(ENCODINGS)]
        status = SCRIPT[nth % len(SCRIPT)]
        asked["sent"] += KEY in str(request.headers)
        heard = [
            request.path_qs,
            request.query.get("k", ""),
            *request.headers.values(),
            KEY,
            *SECRETS.values(),
        ]
        words = " | ".join(encode(each) for each in heard)
        body = {"error": {"message": words, "code": None}}
        if status == 200:
            message = {"role": "assistant", "content": f"{words}\nScore: 7"}
            body = {
                "id": words,
                "model": "m",
                "choices": [{"message": message, "finish_reason": "stop"}],
            }
        raw = (
            json.dumps(body)
            if nth % 2
            else f"<html>{json.dumps(body)}</html>"
            if status != 200
            else json.dumps(body)
        )
        headers = {
            "X-Echo": words[:4000].replace("\n", " "),
            "Location": f"http://x/?{encode(KEY)}",
            "Retry-After": "0.01",
        }
        return web.Response(
            status=status, text=raw, content_type="application/json", headers=headers, reason="No"
        )

    async def main():
        nonlocal stop
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        stop = asyncio.Event()
        asked["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
        asked["loop"] = asyncio.get_running_loop()
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait(30)
    try:
        yield asked
    finally:
        asked["loop"].call_soon_threadsafe(stop.set)
        thread.join(30)


def config(url, folder, **parts):
    return {
        "components": {"q": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [
                    {
                        "base_url": f"{url}/v1?k={quote(SECRETS['query'], safe='')}",
                        "model": "m",
                        "api_key_env": "PLANTED_KEY",
                        "headers": {
                            "X-One": SECRETS["header"],
                            "X-Two": SECRETS["short"],
                            "X-Three": f"Bearer {SECRETS['token']}",
                        },
                    }
                ],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"attempts": 2, "timeout_s": 10, "deadline_s": 20},
        "cache": {"path": str(folder / "judgements.db")},
        **parts,
    }


ROWS = [Sample("q", f"answer {n}", id=str(n)) for n in range(len(SCRIPT) * len(ENCODINGS))]


@pytest.mark.wire
def test_nothing_that_a_run_leaves_behind_holds_a_secret(tmp_path, monkeypatch, caplog):
    """Rewards, events, statistics, logs, the record, the cache: while the judge quotes everything."""
    monkeypatch.setenv("PLANTED_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    events = []

    async def hub():
        async with JobHub(config(judge["url"], tmp_path), record=tmp_path / "run") as hub:
            rewards = await hub.score_all([Sample("q", f"hub {row.id}") for row in ROWS])
            return rewards, await hub.stats()

    with echoing() as judge:
        with zerowait.open(config(judge["url"], tmp_path), listener=events.append) as rewards:
            scored = rewards.score(ROWS)
            left = [scored, rewards.stats(), repr(rewards), events]
        left.append(asyncio.run(hub()))
    assert judge["sent"] == judge["count"] > len(ROWS)  # the key was sent, and the judge quoted it
    assert any(reward.value == 7 for reward in scored)
    assert any(reward.value is None for reward in scored)
    texts = [repr(left), caplog.text, pickle.dumps(left[0]).decode("latin-1")]
    texts += [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    assert len(texts) >= 6
    for text in texts:
        assert not found(text)


@pytest.mark.wire
def test_the_command_shows_no_secret(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"prompt": "q", "response": "{n}"}}\n' for n in range(60))
    )
    with echoing() as judge:
        (tmp_path / "reward.yaml").write_text(json.dumps(config(judge["url"], tmp_path)))
        commands = [
            ["score", "rows.jsonl", "-c", "reward.yaml"],
            ["doctor", "config", "reward.yaml", "--ask"],
            ["doctor", "config", "reward.yaml", "--show-prompt"],
            ["score", "rows.jsonl", "-c", "missing.yaml"],
        ]
        for command in commands:
            ended = subprocess.run(
                [sys.executable, "-c", "from zerowait.cli import main; main()", *command],
                cwd=tmp_path,
                env=os.environ | {"PLANTED_KEY": KEY},
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert "Traceback" not in ended.stderr
            assert not found(ended.stdout + ended.stderr), command
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "reward.yaml"]
    assert files
    assert not found("".join(file.read_bytes().decode("latin-1") for file in files))


def modules():
    """All but those of verl, which takes seconds to import; a walk over packages imports it too."""
    source = Path(zerowait.__file__).parent
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source.parent).with_suffix("").parts
        if parts[1] != "verl":
            yield ".".join(parts).removesuffix(".__init__")


def test_no_help_page_shows_the_environment(monkeypatch):
    """``help(zerowait.Engine)`` printed it: a default argument was ``os.environ``."""
    monkeypatch.setenv("PLANTED_KEY", KEY)
    assert not found(pydoc.render_doc(zerowait.Engine) + pydoc.render_doc(zerowait.Rewards))
    for name in modules():
        shown = pydoc.render_doc(importlib.import_module(name), renderer=pydoc.plaintext)
        assert not found(shown), name


def shown_with_locals(error):
    """What tracebacks show: Python's own, rich's local variables, and all variables' reprs.

    Not rich's whole picture: most of its time goes into the colours of the source.
    """
    out = io.StringIO()
    console = Console(file=out, width=300)
    trace = Traceback.extract(
        type(error), error, error.__traceback__, show_locals=True, locals_max_string=None
    )
    for stack in trace.stacks:
        console.print(f"{stack.exc_type}: {stack.exc_value}", markup=False)
        for frame in stack.frames:
            console.print(render_scope(frame.locals))
    text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return out.getvalue() + text


def test_what_tracebacks_show_has_a_secret_of_a_local_variable():
    def fail(planted):
        raise ConfigError("no secret here")

    with pytest.raises(ConfigError) as caught:
        fail(f"words {KEY}")
    assert found(shown_with_locals(caught.value))


WRONG = {
    "an unknown key": lambda c: c["judges"]["q"].update(rubrik="x"),
    "a wrong type": lambda c: c["judges"]["q"].update(max_tokens="many"),
    "a wrong endpoint": lambda c: c["judges"]["q"]["endpoints"][0].update(weight=-1),
    "a header": lambda c: c["judges"]["q"]["endpoints"][0]["headers"].update({"X One": KEY}),
    "a rubric": lambda c: c["judges"]["q"].update(rubric="gone.md"),
    "another judge": lambda c: c["components"]["q"].update(judge="z"),
    "a user in the URL": lambda c: c["judges"]["q"]["endpoints"][0].update(
        base_url=f"http://me:{KEY}@h/v1"
    ),
    "a key as a name": lambda c: c["judges"]["q"]["endpoints"][0].update(api_key_env=KEY),
    "no key in the variable": lambda c: c["judges"]["q"]["endpoints"][0].update(
        api_key_env="NOT_SET"
    ),
    "a key with a line break": lambda c: c["judges"]["q"]["endpoints"][0].update(
        api_key=f"{KEY}\n{KEY}"
    ),
    "a proxy": lambda c: c["traffic"].update(proxy=f"socks5://me:{KEY}@h:1"),
    "the cache": lambda c: c.update(cache={"url": f"http://:{KEY}@h"}),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("literal", [True, False])
def test_no_traceback_of_a_wrong_configuration_shows_a_secret(
    change, literal, tmp_path, monkeypatch
):
    monkeypatch.setenv("PLANTED_KEY", KEY)
    monkeypatch.setenv("NOT_A_KEY", f"{KEY}\u00e9")

    def given():
        tree = config("http://h", tmp_path)
        if literal:
            del tree["judges"]["q"]["endpoints"][0]["api_key_env"]
            tree["judges"]["q"]["endpoints"][0]["api_key"] = KEY
        change(tree)
        return tree

    path = tmp_path / "reward.yaml"
    path.write_text(json.dumps(given()))
    makes = (
        lambda: zerowait.open(given()),
        lambda: Engine(given()),
        lambda: load_config(path),
        lambda: Engine(path),
    )
    errors = [error for make in makes if (error := raised(make)) is not None]
    assert errors or literal  # a literal key needs no variable
    for error in errors:
        assert not found(shown_with_locals(error))
        assert not found(pickle.dumps(error).decode("latin-1"))


def raised(make):
    try:
        make()
    except ConfigError as error:
        return error
    return None


def test_a_variable_whose_value_is_no_key_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_KEY", f"{KEY}\u00e9")
    with pytest.raises(ConfigError, match="PLANTED_KEY, whose value is no key") as caught:
        Engine(config("http://h", tmp_path))
    assert not found(shown_with_locals(caught.value))


def test_no_traceback_of_a_transport_shows_a_secret():
    place = target(
        load_config(config("http://127.0.0.1:9", io_path())).judges["q"].endpoints[0],
        key=Secret(KEY),
    )

    async def scenario():
        transport = HttpTransport()
        try:
            await transport.send(Request(place.url, place.headers, b"{}"), timeout_s=1)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            return shown_with_locals(error)
        finally:
            await transport.aclose()

    assert not found(asyncio.run(scenario()))


def io_path():
    return Path("/tmp")


def test_no_repr_and_no_pickle_shows_a_secret(tmp_path):
    tree = config("http://h", tmp_path, cache={"url": f"redis://:{quote(KEY, safe='')}@h:6379/0"})
    tree["judges"]["q"]["endpoints"][0] |= {
        "api_key": KEY,
        "proxy": f"http://me:{quote(KEY, safe='')}@p:3128",
    }
    del tree["judges"]["q"]["endpoints"][0]["api_key_env"]
    tree["traffic"]["proxy"] = f"http://me:{quote(KEY, safe='')}@p:3128"
    loaded = load_config(tree)
    place = target(loaded.judges["q"].endpoints[0], key=Secret(KEY), proxy=loaded.traffic.proxy)
    out = io.StringIO()
    for each in (
        loaded,
        loaded.judges,
        loaded.traffic,
        loaded.cache,
        place,
        Secret(KEY),
        Request(place.url, place.headers, b"", place.proxy),
    ):
        Console(file=out, width=1000).print(each)
        out.write(f"{each!r} {each}")
    assert not found(out.getvalue())
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        pickled = pickle.dumps((loaded, Secret(KEY)), protocol=protocol)
        assert not found(pickled.decode("latin-1"))
        again, key = pickle.loads(pickled)
        assert again.judges == loaded.judges
        assert (again.traffic, again.cache, key.reveal()) == (loaded.traffic, loaded.cache, KEY)
