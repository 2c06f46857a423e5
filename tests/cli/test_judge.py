"""The command ``zerowait judge``."""

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from zerowait.cli.judge import _check_ports
from zerowait.errors import ConfigError
from zerowait.testing import FakeJudge


def test_a_fake_judge_says_what_it_was_asked_when_it_ends(start_zerowait):
    process = start_zerowait("judge", "--fake", "--port", "0")
    url = process.stdout.readline().split()[-1]
    body = {"model": "m", "messages": [{"role": "user", "content": "integer from 1 to 10"}]}
    for _ in range(2):
        request = urllib.request.Request(
            f"{url}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).read()
    process.send_signal(signal.SIGINT)
    output, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    assert output.startswith("2 requests, 2 answered, 1 different, 1 asked again although answered")


def test_a_port_that_is_taken_is_one_clear_line_and_exit_code_2(zerowait_process):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = zerowait_process("judge", "--fake", "--port", port)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"zerowait: --port {port}: no judge can listen at 127.0.0.1:{port}: "
        "Address already in use\n"
    )


def test_a_reader_of_its_output_that_is_gone_is_no_fault_of_the_port(start_zerowait):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = start_zerowait("judge", "--fake", "--port", "0", stdout=writer)
    finally:
        os.close(writer)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (1, "")


def test_an_output_that_cannot_be_written_is_no_fault_of_the_port(start_zerowait):
    with Path("/dev/full").open("w") as full:
        process = start_zerowait("judge", "--fake", "--port", "0", stdout=full)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (2, "zerowait: No space left on device\n")


def asked(url, model):
    body = {"model": model, "messages": [{"role": "user", "content": "How good?"}]}
    request = urllib.request.Request(
        f"{url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]


def test_a_model_of_ones_own_is_served_until_an_interrupt(start_zerowait, weights):
    well = weights()
    process = start_zerowait(
        *("judge", "--engine", "llama_cpp", "--model", well.path.name),
        *("--replicas", "2", "--port", "0", "--arg", "ctx-size=64"),
    )
    urls = [process.stdout.readline().split()[-1] for _ in range(2)]
    pasted = process.stdout.readline()
    assert f'endpoints: [{{base_url: "{urls[0]}", model: {well.path.name}}}, ' in pasted
    assert [asked(url, well.path.name) for url in urls] == ['{"reason": "", "score": 7}'] * 2
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints, well.running) == (0, "", [])


def test_a_model_that_cannot_be_served_is_one_error(zerowait_process, weights):
    broken = weights("broken")
    ended = zerowait_process("judge", "--engine", "llama_cpp", "--model", broken.path, "--port", 0)
    assert ended.returncode == 2
    assert "--engine llama_cpp: the server ended with exit code 1; the end of" in ended.stderr
    assert "tensor 'blk.0' has the wrong shape" in ended.stderr


def test_a_port_that_is_taken_is_one_line_and_nobody_elses_server_is_announced(zerowait, weights):
    with FakeJudge() as other:  # it would answer the question whether the server is ready
        taken = urlsplit(other.url).port
        serve = ("judge", "--engine", "llama_cpp", "--model", weights().path.name)
        ended = zerowait(*serve, "--port", taken)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--port {taken}: no judge can listen at 127.0.0.1:{taken}: " in ended.stderr


def test_ports_of_further_replicas_have_to_exist():
    with pytest.raises(ConfigError, match=r"--port 65536: .*: ports end at 65535"):
        _check_ports("127.0.0.1", [65536])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--engine lama_cpp --model m", "there is no such engine; did you mean 'llama_cpp'?"),
        ("--engine llama_cpp", "--engine needs --model: a folder, a GGUF file"),
        ("--engine llama_cpp --model no.gguf", "--model is no.gguf, and there is no GGUF file"),
        ("--engine llama_cpp --model m --replicas 0", "--replicas must be from 1 to 1024, not 0"),
        ("--engine llama_cpp --model m --arg port=1", "--args must leave port to zerowait"),
        ("--fake --model m", "--model, --replicas, --gpus and --arg go with --engine"),
        ("--fake --engine vllm", "give one of --fake, --weights minilm|smollm2, and --engine"),
    ],
)
def test_wrong_options_of_a_model_of_ones_own(zerowait, options, says):
    ended = zerowait("judge", *options.split())
    assert ended.returncode == 2
    assert says in ended.stderr
