"""Judges that zerowait serves itself: started, asked, restarted, ended; what is missing is told."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import zerowait
from zerowait.config.serve import ServeSettings
from zerowait.engine.serving import process as serving_process
from zerowait.engine.serving.commands import COMMANDS, Listening
from zerowait.engine.serving.process import ServerFailedError, ServerPlan, ServerProcess
from zerowait.errors import ConfigError
from zerowait.events import RequestEnded
from zerowait.hub.job import JobHub
from zerowait.types import Sample

LONG_S = 120


def until(holds, *, what):
    """Wait for what another process does."""
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def config_of(weights, judges=("quality",), *, traffic=None, **serve):
    settings = {
        "engine": "llama_cpp",
        "model": str(weights.path),
        "ready_timeout_s": LONG_S,
        **serve,
    }
    judge = {"endpoints": [{"serve": settings}], "verdict": {"integer": [1, 10]}}
    return {
        "components": {name: {"judge": name} for name in judges},
        "judges": dict.fromkeys(judges, judge),
        "traffic": {"hedge": "off", "deadline_s": LONG_S, "timeout_s": 60, **(traffic or {})},
        "cache": "off",
    }


def samples(count):
    return [Sample(f"{number}?", f"{number}!") for number in range(count)]


def values(rewards):
    return [reward.value for reward in rewards]


def test_a_served_judge_answers_and_is_gone_with_the_engine(weights):
    well = weights()
    with zerowait.open(config_of(well, replicas=2)) as rewards:
        assert values(rewards.score(samples(20))) == [7.0] * 20
        assert len(well.running) == 2
    assert well.running == []


def test_requests_are_shared_by_the_replicas(weights):
    slow = weights("slow")
    asked = set()

    def listen(event):
        if isinstance(event, RequestEnded):
            asked.add(event.endpoint)

    with zerowait.open(config_of(slow, replicas=2), listener=listen) as rewards:
        rewards.score(samples(20))
    assert len(asked) == 2
    assert all(".served/v1/chat/completions" in endpoint for endpoint in asked)


def test_judges_that_serve_the_same_share_the_servers(weights):
    well = weights()
    with zerowait.open(config_of(well, ("quality", "safety"))) as rewards:
        assert values(rewards.score(samples(3))) == [14.0] * 3
        assert len(well.running) == 1


def test_a_replica_that_is_killed_is_restarted_and_nothing_is_lost(weights):
    slow = weights("slow")
    with zerowait.open(config_of(slow, replicas=2)) as rewards:
        future = rewards.submit_all(samples(60))
        os.kill(slow.running[0], signal.SIGKILL)
        assert values(future.result(LONG_S)) == [7.0] * 60
        until(lambda: len(slow.running) == 2, what="the replica is not restarted")
        assert len(slow.started) == 3


def test_a_judge_whose_only_server_dies_is_waited_for(weights):
    well = weights()
    with zerowait.open(config_of(well)) as rewards:
        os.kill(well.running[0], signal.SIGKILL)
        assert values(rewards.score(samples(10))) == [7.0] * 10


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


@pytest.mark.parametrize("killed", ["the server", "its guard"])
def test_what_a_server_has_started_dies_with_it(weights, killed):
    """vLLM's engine outlives a server that is killed and keeps the GPU from the next one."""
    family = weights("family")
    with zerowait.open(config_of(family)) as rewards:
        (server,), (child,) = family.running, family.children
        os.kill(server if killed == "the server" else parent_of(server), signal.SIGKILL)
        until(lambda: len(family.children) == 1 and child not in family.children, what="no restart")
        assert values(rewards.score(samples(2))) == [7.0] * 2
    assert family.children == []


PARENT = """
import sys, time, zerowait
with zerowait.open({config!r}) as rewards:
    print("open", flush=True)
    time.sleep(1000)
"""


def test_servers_end_with_a_process_that_is_killed(weights):
    well = weights()
    code = PARENT.format(config=config_of(well, replicas=2))
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "open\n"
        assert len(well.running) == 2
    finally:
        parent.kill()
        parent.communicate()
    until(lambda: well.running == [], what="servers outlive their process")


def test_a_server_that_does_not_start_says_why_with_its_own_words(weights):
    broken = weights("broken")
    with pytest.raises(ConfigError) as failed, zerowait.open(config_of(broken)):
        pass
    says = str(failed.value)
    assert (
        "judges.quality.endpoints[0].serve did not start: the server ended with exit code 1" in says
    )
    assert "error: tensor 'blk.0' has the wrong shape" in says
    assert len(broken.started) == 1


def test_a_server_that_is_never_ready_is_given_up(weights):
    loading = weights("loading")
    config = config_of(loading, ready_timeout_s=0.5)
    with pytest.raises(ConfigError, match=r"was not ready in 0.5 s \(ready_timeout_s\)"):
        zerowait.open(config)
    assert loading.running == []


def test_a_server_that_keeps_dying_is_given_up(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(serving_process, "_FIRST_PAUSE_S", 0.001)
    well = weights()
    settings = ServeSettings(engine="llama_cpp", model="any")
    plan = ServerPlan(
        settings=settings, title="mortal", weights=str(well.path), name="any",
        folder=tmp_path, environment={},
    )  # fmt: skip

    async def kill_each():
        server = ServerProcess(plan)
        server.start()
        try:
            place = await server.wait_ready()
            well.path.write_text("broken")  # so that no start after this one succeeds
            os.kill(well.running[0], signal.SIGKILL)
            while True:
                place = await server.wait_changed(place)
        finally:
            await server.aclose()

    with pytest.raises(ServerFailedError, match=r"exit code 1 \(6 times\); the end of"):
        asyncio.run(kill_each())
    assert len(well.started) == 1 + serving_process.RESTARTS


def test_the_logs_are_in_the_folder_of_the_record(weights, tmp_path):
    async def one():
        async with JobHub(config_of(weights()), record=tmp_path / "run") as hub:
            return await hub.score(samples(1)[0])

    assert asyncio.run(one()).value == 7.0
    (log,) = (tmp_path / "run" / "judge_servers").iterdir()
    assert "llama-server --model" in log.read_text()


def test_a_path_of_weights_starts_at_the_configuration(weights, tmp_path):
    weights()
    path = tmp_path / "reward.yaml"
    path.write_text(
        "components: {quality: {judge: quality}}\n"
        "judges:\n"
        "  quality:\n"
        "    verdict: {integer: [1, 10]}\n"
        "    endpoints: [{serve: {engine: llama_cpp, model: well.gguf}}]\n"
        "cache: off\n"
    )
    with zerowait.open(path) as rewards:
        assert values(rewards.score(samples(1))) == [7.0]


def test_gpus_are_given_to_one_replica_each(weights, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    well = weights()
    with zerowait.open(config_of(well, replicas=3, gpus=1)):
        assert sorted(gpus for _, gpus in well.started) == ["4", "5", "7"]


@pytest.mark.parametrize(
    ("serve", "says"),
    [
        (
            {"model": "nowhere.gguf"},
            r"\[0\]\.serve\.model is nowhere.gguf, and there is no GGUF file /",
        ),
        (
            {"engine": "sglang", "gpus": 0, "model": "no/such/one"},
            r"serve\.model is .*, and there is no folder /",
        ),
        (
            {"gpus": 2, "replicas": 2},
            r"serve\.gpus is 2, times 2 replicas, and this machine has 1 GPUs",
        ),
    ],
)
def test_what_is_missing_is_one_line_before_any_work(weights, monkeypatch, serve, says):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    well = weights()
    with pytest.raises(ConfigError, match=says) as failed:
        zerowait.open(config_of(well, **serve))
    assert "\n" not in str(failed.value)
    assert well.started == []


def test_an_engine_that_is_not_installed_is_named_with_its_installation(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "config.json").touch()
    serve = {"engine": "vllm", "model": str(tmp_path), "gpus": 0}
    judge = {"endpoints": [{"serve": serve}], "verdict": {"integer": [1, 10]}}
    config = {"components": {"q": {"judge": "q"}}, "judges": {"q": judge}}
    with pytest.raises(
        ConfigError, match=r"serve\.engine is vllm, .* not installed here: pip install vllm"
    ):
        zerowait.open(config)


def test_the_reward_model_of_verl_is_for_trainings(tmp_path):
    judge = {"endpoints": [{"base_url": "verl", "model": "m"}], "verdict": {"integer": [1, 10]}}
    config = {"components": {"q": {"judge": "q"}}, "judges": {"q": judge}, "cache": "off"}
    with pytest.raises(
        ConfigError, match=r"endpoints\[0\]\.base_url is verl, the reward model that"
    ):
        zerowait.open(config)


LISTENING = Listening(model="/models/judge", name="judge", host="127.0.0.1", port=9)
AT = "--host 127.0.0.1 --port 9"


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        (
            {"engine": "vllm"},
            f"serve /models/judge --served-model-name judge {AT} --uvicorn-log-level warning",
        ),
        (
            {"engine": "vllm", "gpus": 4, "args": {"max_model_len": 8192, "enforce-eager": True}},
            (
                f"serve /models/judge --served-model-name judge {AT} --tensor-parallel-size 4 "
                "--uvicorn-log-level warning --max-model-len 8192 --enforce-eager"
            ),
        ),
        (
            {
                "engine": "vllm",
                "gpus": 4,
                "args": {"pipeline-parallel-size": 4, "uvicorn-log-level": "info"},
            },
            (
                f"serve /models/judge --served-model-name judge {AT} --pipeline-parallel-size 4 "
                "--uvicorn-log-level info"
            ),
        ),
        (
            {"engine": "sglang", "gpus": 2, "args": {"mem-fraction-static": 0.8}},
            (
                f"--model-path /models/judge --served-model-name judge {AT} --tp-size 2 "
                "--log-level-http warning --mem-fraction-static 0.8"
            ),
        ),
        ({"engine": "llama_cpp"}, f"--model /models/judge --alias judge {AT}"),
        (
            {"engine": "llama_cpp", "gpus": 1, "args": {"ctx-size": 8192}},
            f"--model /models/judge --alias judge {AT} --n-gpu-layers 999 --ctx-size 8192",
        ),
        (
            {"engine": "llama_cpp", "gpus": 1, "args": {"n-gpu-layers": 20, "warmup": False}},
            f"--model /models/judge --alias judge {AT} --n-gpu-layers 20 --no-warmup",
        ),
        (
            {"engine": "transformers"},
            f"serve /models/judge {AT} --device cpu --log-level error",
        ),
        (
            {"engine": "transformers", "gpus": 1, "args": {"dtype": "bfloat16"}},
            f"serve /models/judge {AT} --log-level error --dtype bfloat16",
        ),
    ],
)
def test_the_command_of_each_engine(settings, command):
    made = ServeSettings(model="judge", **settings)
    assert COMMANDS[made.engine](made, LISTENING) == command.split()


@pytest.mark.parametrize(
    ("serve", "says"),
    [
        (
            {"engine": "ollama"},
            r"serve\.engine must be vllm or sglang or llama_cpp or transformers",
        ),
        ({"replica": 2}, r"serve has no key 'replica'; did you mean 'replicas'\?"),
        ({"replicas": 0}, r"serve\.replicas must be from 1 to 1024, not 0"),
        ({"gpus": -1}, r"serve\.gpus must be at least 0, not -1"),
        ({"args": {"port": 1}}, r"serve\.args must leave port to zerowait, which sets it"),
        (
            {"args": {"served_model_name": "x"}},
            r"serve\.args must leave served_model_name to zerowait",
        ),
        ({"args": {"--ctx-size": 1}}, r"serve\.args has '--ctx-size': give options without dashes"),
        (
            {"args": {"ctx-size": None}},
            r"args.ctx-size has no value: write true for an option without one",
        ),
        ({"ready_timeout_s": 0}, r"serve\.ready_timeout_s must be greater than 0"),
        (
            {"model": " "},
            r"serve\.model must be a folder or a file of weights, or a name on the Hub",
        ),
    ],
)
def test_wrong_settings_name_their_key(tmp_path, serve, says):
    path = Path(tmp_path / "any.gguf")
    with pytest.raises(ConfigError, match=says):
        zerowait.open(config_of(type("W", (), {"path": path}), **serve))
