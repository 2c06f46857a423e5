"""Who may reach a service, and who may not."""

import base64

import pytest

from zerowait import ConfigError
from zerowait.client import Secret
from zerowait.hub.http import HttpHub
from zerowait.hub.http.settings import ServiceSettings

TOKEN = Secret("sesame")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.3", "judge.example", ""])
def test_other_machines_may_only_ask_with_a_token(host):
    with pytest.raises(ConfigError, match="--token-env"):
        ServiceSettings(host=host)
    assert ServiceSettings(host=host, token=TOKEN).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_may_ask_without(host):
    assert ServiceSettings(host=host).admits(None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"port": 65536},
        {"deadline_s": 0},
        {"deadline_s": float("nan")},
        {"deadline_s": float("inf")},
        {"deadline_s": True},
        {"deadline_s": "60"},
        {"max_body_bytes": 0},
        {"drain_s": -1},
        {"on_abstain": float("nan")},
    ],
)
def test_a_number_out_of_range_is_a_configuration_error(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ServiceSettings(**wrong)


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("header", ["Bearer sesame", "bearer  sesame", basic("me:sesame")])
def test_the_token_opens(header):
    assert ServiceSettings(token=TOKEN).admits(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sesame",
        "Bearer",
        "Bearer sesam",
        "Bearer sesame2",
        "Bearer s\udcffsame",
        "Bearer sésame",
        basic("sesame"),
        basic("me:"),
        "Basic !!",
        "Digest sesame",
    ],
)
def test_nothing_else_does(header):
    assert not ServiceSettings(token=TOKEN).admits(header)


def test_the_token_is_never_shown():
    assert "sesame" not in repr(ServiceSettings(token=TOKEN))


@pytest.mark.parametrize("name", ["patience_s", "deadline_s"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, 0, "60", True, None])
def test_the_times_of_a_handle_are_numbers_above_0(name, wrong):
    with pytest.raises(ConfigError, match=f"{name} must be a number of seconds"):
        HttpHub("http://127.0.0.1:1", **{name: wrong})
