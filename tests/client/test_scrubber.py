import base64
import gzip
import html
import json
import time
import zlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.client import Reply, Secret, target
from zerowait.client.scrubber import Scrubber
from zerowait.config import Endpoint

KEY = "sk-planted/0+1=2&3456789"
URL = "http://judge/v1"


def unicode_escaped(text):
    return "".join(f"\\u{ord(char):04x}" for char in text)


def percent(text, form="%{:02X}"):
    return "".join(form.format(ord(char)) for char in text)


def in_base64(text, *, shift=0, tail="", encode=base64.b64encode, padding=True):
    encoded = encode(b"\x7f" * shift + text.encode() + tail.encode()).decode()
    return encoded if padding else encoded.rstrip("=")


FORMS = {
    "as it is": KEY,
    "escaped slash": KEY.replace("/", "\\/"),
    "unicode escapes": unicode_escaped(KEY),
    "upper-case unicode escapes": unicode_escaped(KEY).replace("\\u00", "\\U000000"),
    "JSON in JSON": json.dumps(unicode_escaped(KEY)),
    "hexadecimal escapes": "".join(f"\\x{ord(char):02x}" for char in KEY),
    "one escape in the middle": KEY.replace("n", "\\u006E"),
    "URL-encoded": quote(KEY, safe=""),
    "URL-encoded, lower case": quote(KEY, safe="").lower().replace(KEY.lower(), KEY),
    "URL-encoded, every character": percent(KEY, "%{:02x}"),
    "URL-encoded twice": quote(quote(KEY, safe=""), safe=""),
    "URL-encoded twice, every character": quote(percent(KEY), safe=""),
    "URL-encoded three times": quote(quote(quote(KEY, safe=""), safe=""), safe=""),
    "URL-encoded in JSON": json.dumps(quote(KEY, safe="")),
    "HTML": html.escape(KEY),
    "HTML, by number": "".join(f"&#{ord(char)};" for char in KEY),
    "HTML, by hexadecimal number": "".join(f"&#x{ord(char):x};" for char in KEY),
    "HTML twice": html.escape("".join(f"&#x{ord(char):x};" for char in KEY)),
    "in small letters": KEY.lower(),
    "in capitals": KEY.upper(),
    "octal escapes": "".join(f"\\{ord(char):03o}" for char in KEY),
    "escapes in braces": "".join(f"\\u{{{ord(char):x}}}" for char in KEY),
    "quoted-printable": percent(KEY, "={:02X}"),
    "UTF-16": KEY.encode("utf-16-le").decode("latin-1"),
    "UTF-16 in base64": base64.b64encode(KEY.encode("utf-16-le")).decode(),
    "UTF-16 in hexadecimal": KEY.encode("utf-16-le").hex(),
    "base32": base64.b32encode(KEY.encode()).decode(),
    "base32 behind others": base64.b32encode(b"abc" + KEY.encode()).decode(),
    "base64 in base64": in_base64(in_base64("user:" + KEY)),
    "hexadecimal, spaced": KEY.encode().hex(" "),
    "HEXADECIMAL with colons": KEY.encode().hex(":").upper(),
    "a list of numbers": str(list(KEY.encode())),
    "hexadecimal": KEY.encode().hex(),
    "HEXADECIMAL": KEY.encode().hex().upper(),
    **{
        f"base64, {shift} before, {tail or 'nothing'} behind, {name}, padding {padding}": in_base64(
            KEY, shift=shift, tail=tail, encode=encode, padding=padding
        )
        for shift in range(4)
        for tail in ("", ".", "..", "...")
        for name, encode in (("std", base64.b64encode), ("url", base64.urlsafe_b64encode))
        for padding in (True, False)
    },
    "base64 in a URL": quote(in_base64(KEY), safe=""),
    "base64 in JSON": in_base64(KEY + "???", shift=1).replace("/", "\\/"),
    "spaced": " ".join(KEY),
    "in parts": " - ".join(KEY[at : at + 4] for at in range(0, len(KEY), 4)),
    "a list of characters": json.dumps(list(KEY)),
    "in lines": "\n".join(KEY[at : at + 5] for at in range(0, len(KEY), 5)),
    "backwards": KEY[::-1],
    "backwards and spaced": ".".join(KEY[::-1]),
    "base64 in lines": "\r\n".join(
        in_base64(KEY, shift=2)[at : at + 9] for at in range(0, len(in_base64(KEY, shift=2)), 9)
    ),
    "quoted-printable in lines": percent(KEY[:9], "={:02X}")
    + "=\r\n"
    + percent(KEY[9:], "={:02X}"),
    "hexadecimal as dd writes it": KEY.encode().hex(" ", 2),
    "hexadecimal with hyphens": KEY.encode().hex("-"),
    "bytes of a program": ", ".join(f"0x{byte:02x}" for byte in KEY.encode()),
    "BYTES of a program": ", ".join(f"0x{byte:02X}" for byte in KEY.encode()),
    "bits": " ".join(f"{byte:08b}" for byte in KEY.encode()),
    "gzip in base64": base64.b64encode(gzip.compress(f'{{"key": "{KEY}"}}'.encode())).decode(),
    "zlib in base64 for URLs": base64.urlsafe_b64encode(zlib.compress(KEY.encode() * 9)).decode(),
    "gzip in base64 in JSON": json.dumps(
        base64.b64encode(gzip.compress(KEY.encode())).decode()
    ).replace("/", "\\/"),
    "a beginning": KEY[:14],
    "a beginning with stars": KEY[:9] + "*****",
}
# what a secret in `text` must not leave behind
TELLING = [KEY[at : at + 6] for at in range(len(KEY) - 6)] + [
    in_base64(KEY[at : at + 6], padding=False) for at in range(len(KEY) - 6)
]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("around", ["{}", 'the key "{}" is wrong', "/v1/x?key={}&y=1", "({})."])
def test_a_key_is_struck_out_in_every_form(form, around):
    scrubbed = Scrubber([Secret(KEY)]).text(around.format(form))
    assert "***" in scrubbed
    assert form not in scrubbed
    assert not [part for part in TELLING if part in scrubbed]
    for words in around.split("{}"):
        if not words.endswith("="):  # may be a part of what stands in base64
            assert words in scrubbed


@pytest.mark.parametrize("encode", [base64.b85encode, base64.a85encode])
@pytest.mark.parametrize("shift", range(5))
def test_a_key_in_base85_is_struck_out_with_all_that_touches_it(shift, encode):
    form = encode(b"\x7f" * shift + KEY.encode()).decode()
    assert Scrubber([KEY]).text(f"the key {form} is wrong") == "the key *** is wrong"


def test_bytes_are_scrubbed_like_text():
    scrubber = Scrubber([KEY])
    for form in FORMS.values():
        body = json.dumps({"error": {"message": form}}).encode()
        assert form.encode() not in scrubber.body(body)
        assert json.loads(scrubber.body(body).decode())["error"]["message"]


KEYS = st.from_regex(r"[a-z]{2,4}-[A-Za-z0-9_+/=.~-]{12,60}", fullmatch=True)
WORDS = st.text(max_size=40)
ENCODINGS = {
    "as it is": str,
    "spaced": " ".join,
    "URL": lambda text: quote(text, safe=""),
    "JSON twice": lambda text: json.dumps(json.dumps(text)),
    "unicode": unicode_escaped,
    "base64": in_base64,
    "base64 behind others": lambda text: in_base64("ab" + text),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(":"),
    "numbers": lambda text: str(list(text.encode())),
    "backwards": lambda text: text[::-1],
    "base85": lambda text: base64.b85encode(text.encode()).decode(),
    "Ascii85": lambda text: base64.a85encode(b"key " + text.encode()).decode(),
    "gzip": lambda text: in_base64(
        "x", encode=lambda _: base64.b64encode(gzip.compress(text.encode()))
    ),
}
IN_ERRORS_ONLY = {"backwards", "base85", "Ascii85", "gzip"}


@given(key=KEYS, before=WORDS, behind=WORDS, name=st.sampled_from(sorted(ENCODINGS)))
def test_any_key_is_struck_out_in_any_encoding(key, before, behind, name):
    form, scrubber = ENCODINGS[name](key), Scrubber([key])
    text = f"{before} {form} {behind}"
    error = scrubber.body(text.encode()).decode()
    assert "***" in error
    assert form not in error
    assert key not in error
    if name not in IN_ERRORS_ONLY:
        assert form not in scrubber.body(text.encode(), is_answer=True).decode()


def test_words_that_a_key_without_digits_spells_stay_in_an_answer():
    scrubber = Scrubber(["not-needed"])
    answer = b"More is not needed. Score: 7"
    assert scrubber.body(answer, is_answer=True) is answer
    assert scrubber.body(b"the key not-needed", is_answer=True) == b"the key ***"
    assert scrubber.body(answer) == b"More is ***. Score: 7"


@pytest.mark.parametrize("packed", ["H4sI" + "A" * 40, "eJ" + "x" * 40, "eNo" + "_" * 30])
def test_what_cannot_be_unpacked_is_returned_as_it_is(packed):
    assert Scrubber([KEY]).text(f"id {packed}") == f"id {packed}"


def test_a_compressed_bomb_costs_no_more_than_a_megabyte():
    bomb = base64.b64encode(gzip.compress(b"0" * 2**28)).decode()
    began_s = time.process_time()
    assert Scrubber([KEY]).text(bomb) == bomb
    assert time.process_time() - began_s < 20  # 0.04 s; unpacked, it would be 256 MB


def test_what_holds_no_secret_is_returned_as_it_is():
    body = '{"a": "caf\u00e9 \\u00e9 100% \\/ &amp; %zz &#x;"}'.encode()
    scrubber = Scrubber([KEY], ["k3y!"])
    assert scrubber.body(body) is body
    text = "\u7b54\u6848 100 %"
    assert scrubber.text(text) is text


def test_text_around_a_secret_keeps_its_characters():
    assert Scrubber([KEY]).text(f"\u7b54 {KEY} \u00e9") == "\u7b54 *** \u00e9"


def place(**given):
    return target(Endpoint(**{"base_url": URL, "model": "m", **given}), key=Secret("sk-a-key"))


@pytest.mark.parametrize(
    "value", ["k3y!", "abc", "x", "pass", "12", "s3cr3t", "Token abc", "a=b1;c"]
)
def test_a_headers_value_of_any_length_is_struck_out_of_an_error(value):
    scrubbed = place(headers={"X-Key": value}).scrub(
        Reply(
            400, {"x-echo": value}, f'{{"error": "bad header \'{value}\' {quote(value)}"}}'.encode()
        )
    )
    assert value not in scrubbed.headers["x-echo"]
    assert f"'{value}'" not in scrubbed.body.decode()
    assert scrubbed.body.startswith(b'{"error": "bad header')


@pytest.mark.parametrize("value", ["1", "8", "yes", "prod", "0.5", "good"])
def test_a_short_header_does_not_change_an_answer(value):
    body = json.dumps({"content": "yes, good: 8 of 10, or 1, or 0.5 in prod"}).encode()
    assert place(headers={"X-Key": value}).scrub(Reply(200, {}, body)).body is body


def test_a_short_key_is_struck_out_of_an_answer():
    body = b'{"content": "k3y! 8"}'
    assert (
        place(headers={"X-Key": "k3y!"}).scrub(Reply(200, {}, body)).body == b'{"content": "*** 8"}'
    )


URLS = {
    "https://judge/v1?key=qu3ry": ["qu3ry"],
    "https://judge/v1?a=1&key=a%2Fb%2Bcdef12": ["a%2Fb%2Bcdef12", "a/b+cdef12"],
    "https://judge/v1?key=two%20words": ["two%20words", "two words", "two+words"],
    "https://judge/v1?justakey9": ["justakey9"],
    "https://judge/v1;sig=p4ram/x": ["p4ram"],
    "https://judge/v1#fr4gment": ["fr4gment"],
    "https://judge/bot5812345678AAHfiqksKZ8WmR2z/v1": ["bot5812345678AAHfiqksKZ8WmR2z"],
    "https://judge/v1?a=fi4st&b=sec0nd": ["fi4st", "sec0nd"],
}


@pytest.mark.parametrize(("url", "secrets"), URLS.items())
def test_what_a_url_may_hide_is_struck_out_and_not_shown(url, secrets):
    endpoint = Endpoint(base_url=url, model="m")
    for secret in secrets:
        reply = target(endpoint).scrub(Reply(404, {}, f"no {secret} here, nor at {url}".encode()))
        assert secret.encode() not in reply.body
        assert secret not in repr(endpoint) + str(endpoint) + repr(target(endpoint))
        assert secret not in target(endpoint).name


def test_a_proxys_password_is_struck_out():
    proxy = "http://me:pr0xy@proxy:3128"
    place = target(Endpoint(base_url=URL, model="m"), proxy=proxy)
    basic = base64.b64encode(b"me:pr0xy").decode()
    reply = place.scrub(Reply(407, {}, f"me:pr0xy {basic} pr0xy {proxy}".encode()))
    assert reply.body == b"*** *** *** http://***@proxy:3128"


def test_a_reply_costs_a_few_microseconds():
    """It must cost little at thousands of replies a second; ratios, since machines differ."""
    body = json.dumps({"content": "A fine answer.\n" * 60, "usage": {"tokens": 12}}).encode()
    scrub, reply = place().scrub, Reply(200, {}, body)

    def cost_s(work):
        began_s = time.process_time()
        for _ in range(300):
            work()
        return time.process_time() - began_s

    # 3.5 times; each further look at the whole body would cost as much again
    assert min(cost_s(lambda: scrub(reply)) for _ in range(5)) < 8 * min(
        cost_s(lambda: json.loads(body)) for _ in range(5)
    )
