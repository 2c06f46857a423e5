"""What is wrong with `log_to` is said before anything is scored; Prometheus can scrape an `open`."""

import json
import socket
import subprocess
import sys
import urllib.request

import pytest

import zerowait
from zerowait.config import load_config
from zerowait.errors import ConfigError, MissingExtraError
from zerowait.loggers import shown_config
from zerowait.testing import FakeJudge

RULE = {"components": {"answer": {"scorer": "qa_em"}}}


def with_loggers(*log_to):
    return {**RULE, "log_to": list(log_to)}


@pytest.mark.parametrize(
    ("log_to", "says"),
    [
        ("wandb", r"log_to must be a list, such as \[tensorboard\], not 'wandb'"),
        (["wandbb"], r"log_to\[0\] is 'wandbb', which is no logger; did you mean 'wandb'\?"),
        ([{"wandb": {"projct": "x"}}], r"log_to\[0\].wandb has no key 'projct'; did you mean"),
        ([{"wandb": {"mode": "of"}}], r"log_to\[0\].wandb.mode must be online or offline"),
        ([{"wandb": {}, "mlflow": {}}], r"log_to\[0\] must be one name with its settings"),
        (["otel", "otel"], r"log_to\[1\] names otel a second time"),
        ([7], r"log_to\[0\] must be one of wandb, .* not a whole number"),
        ([{"prometheus": {"port": 99999}}], r"prometheus.port must be from 0 to 65535"),
        ([{"otel": {"endpoint": "collector:4318"}}], r"otel.endpoint must start with http://"),
        ([{"tensorboard": {"dir": " "}}], r"tensorboard.dir must be the path of a folder"),
    ],
)
def test_a_wrong_setting_names_its_key(log_to, says):
    with pytest.raises(ConfigError, match=says):
        load_config({**RULE, "log_to": log_to})


@pytest.mark.parametrize(
    "settings",
    [
        {"mlflow": {"tracking_uri": "https://me:planted@host"}},
        {"otel": {"endpoint": "https://me:planted@host"}},
        {"otel": {"endpoint": "https://host/?key=planted"}},
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(settings):
    with pytest.raises(ConfigError, match=r"OTEL_|MLFLOW_") as told:
        load_config(with_loggers(settings))
    assert "planted" not in str(told.value)


def test_names_and_settings_are_read_in_any_order():
    chosen = load_config(
        with_loggers({"otel": None}, "wandb", {"tensorboard": {"dir": "x"}})
    ).log_to
    assert list(chosen.wanted) == ["wandb", "tensorboard", "otel"]
    assert chosen.tensorboard.dir == "x"
    assert chosen.without("otel", "wandb").wanted.keys() == {"tensorboard"}


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow", "trackio", "otel"])
def test_a_missing_package_is_named_with_its_command_at_construction(name, monkeypatch):
    real = sys.modules["zerowait.loggers.table"].find_spec
    absent = {"wandb", "tensorboard", "mlflow", "trackio", "opentelemetry.sdk"}
    monkeypatch.setattr(
        "zerowait.loggers.table.find_spec", lambda n: None if n in absent else real(n)
    )
    with pytest.raises(
        MissingExtraError, match=rf"log_to: {name}.*pip install 'zerowait\[{name}\]'"
    ):
        zerowait.open(with_loggers(name))
    with pytest.raises(MissingExtraError, match=name):
        zerowait.Engine(with_loggers(name))


def test_no_logger_is_imported_unless_it_is_wanted():
    code = """
import sys, zerowait
with zerowait.open({"components": {"a": {"scorer": "qa_em"}}, "log_to": []}) as rewards:
    rewards.score([zerowait.Sample("q", "<answer>a</answer>", "a")])
heavy = {"wandb", "tensorboard", "mlflow", "trackio", "opentelemetry", "prometheus_client"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_what_a_runs_page_shows_holds_no_address_and_no_key():
    judge = {
        "endpoints": [{"base_url": "http://10.0.0.7:1/v1", "model": "m", "api_key": "planted"}],
        "verdict": {"integer": [1, 10]},
        "parameters": {"user": "planted"},
    }
    config = load_config(
        {"components": {"q": {"judge": "q", "weight": 0.5}}, "judges": {"q": judge}}
    )
    shown = shown_config(config)
    assert shown["components.q.weight"] == 0.5
    assert shown["judges.q.model"] == "m"
    assert "planted" not in json.dumps(shown)
    assert "10.0.0.7" not in json.dumps(shown)


def test_prometheus_scrapes_what_was_opened():
    with FakeJudge() as judge:
        config = {
            "components": {"q": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            "cache": "off",
            "log_to": [{"prometheus": {"port": 0}}],
        }
        with zerowait.open(config) as rewards:
            rewards.score([zerowait.Sample(str(n), "a") for n in range(5)])
            assert rewards.metrics_url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(rewards.metrics_url, timeout=60) as page:
                text = page.read().decode()
            url = rewards.metrics_url
    assert "zerowait_asked_total 5.0" in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=60)


def test_a_taken_port_is_an_error_before_anything_is_scored():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = with_loggers({"prometheus": {"port": port}})
        with pytest.raises(ConfigError, match=f"port {port}: .*port: 0 takes a free one"):
            zerowait.open(config)
