"""Bodies that are too long, or never come: what the service answers, and how soon."""

import asyncio
import json
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from zerowait.engine import AnchorStats, Stats
from zerowait.engine.monitor.prometheus import exposition
from zerowait.events import Drift
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings

RULE = {"components": {"answer": {"scorer": "contains"}}}
RIGHT = json.dumps({"prompt": "p", "response": "Paris", "ground_truth": "Paris"}).encode()
HEAD = "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}\r\n"


def head(path, *more):
    return HEAD.format(path=path, more="".join(f"{line}\r\n" for line in more)).encode()


def answered(*writes, pause_s=0.0, **settings):
    """The first lines that come back, and after how long, while the client still sends."""

    async def scenario():
        settings_ = ServiceSettings(port=0, max_body_bytes=1000, **settings)
        async with serving(RULE, settings_) as (url, _):
            reader, writer = await asyncio.open_connection("localhost", int(url.rpartition(":")[2]))

            async def send():
                for part in writes:
                    writer.write(part)
                    await asyncio.sleep(pause_s)
                await asyncio.Event().wait()

            sending = asyncio.create_task(send())
            began_s = time.monotonic()
            async with asyncio.timeout(30):
                lines = (await reader.readuntil(b"\r\n\r\n")).decode()
            took_s = time.monotonic() - began_s
            sending.cancel()
            writer.close()
            return lines, took_s

    return asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/v1/score", "/get_reward"])
@pytest.mark.parametrize("length", [1001, 9_900_000_000, 10**18])
@pytest.mark.parametrize("more", [[], ["Expect: 100-continue"]])
def test_a_body_that_says_it_is_too_long_is_refused_before_it_comes(path, length, more):
    lines, took_s = answered(head(path, f"Content-Length: {length}", *more))
    assert lines.startswith("HTTP/1.1 413 ")
    assert took_s < 5


def test_a_body_that_may_come_gets_100_continue():
    more = f"Content-Length: {len(RIGHT)}", "Expect: 100-continue"
    assert answered(head("/v1/score", *more))[0] == "HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("path", ["/v1/score", "/get_reward"])
def test_a_body_without_a_length_is_refused_when_it_has_become_too_long(path):
    chunk = b"1f4\r\n" + b" " * 500 + b"\r\n"
    lines, _ = answered(head(path, "Transfer-Encoding: chunked"), chunk, chunk, chunk, pause_s=0.01)
    assert lines.startswith("HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ["/v1/score", "/get_reward"])
@pytest.mark.parametrize("framing", ["Content-Length: 900", "Transfer-Encoding: chunked"])
def test_a_body_that_trickles_in_gets_408(path, framing):
    bit = b"1\r\n \r\n" if "chunked" in framing else b" "
    lines, took_s = answered(head(path, framing), *[bit] * 40, pause_s=0.02, body_s=0.2)
    assert lines.startswith("HTTP/1.1 408 ")
    assert took_s >= 0.2


def test_a_body_in_time_is_answered():
    assert answered(head("/v1/score", f"Content-Length: {len(RIGHT)}"), RIGHT)[0].startswith(
        "HTTP/1.1 200 "
    )


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", 'x"} 1\nfoo{y="', "\u7b54", "a{b}", ""])
def test_metrics_are_readable_whatever_a_judge_is_called(name):
    drift = Drift(anchors=20, mean_abs=0.25, rank_correlation=0.9, flips=2)
    stats = Stats(asked=3, anchors={name: AnchorStats(measurements=2, alarms=1, since_first=drift)})
    families = {family.name: family for family in text_string_to_metric_families(exposition(stats))}
    (sample,) = families["zerowait_judge_drift"].samples
    assert (sample.labels, sample.value) == ({"judge": name, "against": "first"}, 0.25)
    assert families["zerowait_asked"].samples[0].value == 3


@pytest.mark.parametrize("path", ["/v1/score", "/get_reward"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_is_not_packed_as_it_says_is_the_senders_fault(path, encoding, caplog):
    more = f"Content-Encoding: {encoding}", "Content-Length: 5"
    assert answered(head(path, *more), b"abcde")[0].startswith("HTTP/1.1 400 ")
    assert caplog.text == ""  # no traceback of a mistake that is not the service's
