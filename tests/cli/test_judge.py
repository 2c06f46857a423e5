"""The command ``zerowait judge``."""

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path


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
