import pickle
import traceback

import msgspec
import pytest

from zerowait.client import Reply, Request, Secret
from zerowait.client.target import target
from zerowait.config import Endpoint
from zerowait.errors import ConfigError

KEY = "sk-planted-0123456789"


def test_no_way_of_printing_a_secret_shows_it():
    secret = Secret(KEY)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{[secret]}"]
    assert all("planted" not in text for text in shown)


def test_a_secret_survives_pickling():
    assert pickle.loads(pickle.dumps(Secret(KEY))).reveal() == KEY


def test_a_secret_cannot_be_written_as_json_by_accident():
    with pytest.raises(TypeError):
        msgspec.json.encode({"key": Secret(KEY)})


def test_white_space_around_a_key_is_dropped():
    assert Secret(f" {KEY}\n").reveal() == KEY


@pytest.mark.parametrize("bad", ["", " \n", "sk-a\nb", "sk-\u00e9", "sk-\x00"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(bad):
    with pytest.raises(ConfigError) as caught:
        Secret(bad)
    assert "sk-" not in "".join(traceback.format_exception(caught.value, chain=False)[-1:])


def test_equal_keys_are_equal_secrets():
    assert Secret(KEY) == Secret(KEY)
    assert Secret(KEY) != Secret(KEY + "x")
    assert len({Secret(KEY), Secret(KEY)}) == 1


def test_neither_requests_nor_targets_show_their_headers():
    place = target(Endpoint(base_url="http://judge/v1", model="m"), key=Secret(KEY))
    assert place.headers["Authorization"] == f"Bearer {KEY}"
    request = Request(place.url, place.headers, b"{}")
    assert "planted" not in repr(place) + repr(request)
    assert "planted" not in str(list(place.__rich_repr__()) + list(request.__rich_repr__()))


def test_a_reply_shows_its_status_and_not_its_body():
    assert repr(Reply(200, {"set-cookie": "c"}, b"text")) == "Reply(status=200, body=<4 bytes>)"
    assert list(Reply(200, {}, b"text").__rich_repr__()) == [("status", 200)]


def test_an_endpoints_name_leaves_out_the_query():
    place = target(Endpoint(base_url="https://judge/v1/chat/completions?api-key=k", model="m"))
    assert "api-key" not in place.name


def test_an_endpoints_own_headers_are_sent():
    endpoint = Endpoint(base_url="http://judge/v1", model="m", headers={"api-key": KEY})
    assert target(endpoint).headers["api-key"] == KEY


@pytest.mark.parametrize("url", ["https://me:pw@judge/v1", "http:///v1"])
def test_a_url_that_cannot_be_asked_is_a_configuration_error_without_the_password(url):
    with pytest.raises(ValueError, match="base_url must") as caught:
        Endpoint(base_url=url, model="m")
    assert "pw" not in str(caught.value)
