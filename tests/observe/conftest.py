"""Runs whose reward falls at step 6 for a known cause, by the real engine and the fake judge."""

import json
import re
import socket
import time
from pathlib import Path

import pytest

import zerowait
from zerowait import Sample
from zerowait.testing import FakeJudge

STEPS, FALLS_AT = 8, 6
GROUPS, SIZE = 6, 4


def harder_prompts(folder: Path) -> None:
    """From step 6 most prompts are of the harder data source, which was rare before."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(
            folder, judge, sources=lambda step, g: "aime" if g == 0 or step >= FALLS_AT else "gsm8k"
        )


def harder_prompts_of_one_source(folder: Path) -> None:
    """Every fourth step has the hard prompts again; nothing but their own past tells it."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(
            folder,
            judge,
            prompts=lambda step, g: f"{'hard' if step % 3 == 0 else 'easy'} question {g}",
            right=lambda step, g, k: step % 3 != 0 or k == 0,
        )


def judge_outage(folder: Path) -> None:
    """The judge is gone from step 6; a failed judgement is worth 0 here, as the user chose."""
    with FakeJudge(answer=verdict_in_response) as judge:
        run(folder, judge, steps=range(1, FALLS_AT))
    # nothing waits long for a judge that is not there
    gone = {"deadline_s": 1, "attempts": 1}
    with socket.socket() as held:  # nobody else listens there, and neither does it
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        run(folder, judge_url=url, steps=range(FALLS_AT, STEPS + 1), traffic=gone)


def judge_drift(folder: Path) -> None:
    """From step 6 the judge gives 4 points less for the same."""
    shift = 0

    def answer(body):
        return verdict_in_response(body, less=shift)

    def begin(step):
        nonlocal shift
        shift = 4 if step >= FALLS_AT else 0

    anchors = folder.with_name(f"{folder.name}-anchors.jsonl")
    rows = [{"prompt": "q", "response": f"q={n}", "verdict": n} for n in (5, 6, 7, 8, 9)]
    anchors.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with FakeJudge(answer=answer) as judge:
        measured = {"anchors": str(anchors), "anchors_every": {"steps": 1}}
        run(folder, judge, begin=begin, end=anchors_are_measured, judged=measured)


def anchors_are_measured(step, rewards):
    """A training step takes long enough for that; here it is waited for."""
    give_up_at = time.monotonic() + 60
    while getattr(rewards.stats().anchors.get("grader"), "measurements", 0) < step:
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def length_hacking(folder: Path) -> None:
    """The judge likes long responses, so that they get longer, and from step 6 wrong."""
    with FakeJudge(answer=verdict_by_length) as judge:
        run(
            folder,
            judge,
            right=lambda step, g, k: (g + k) % 8 != 0 and (step < FALLS_AT or k == 0),
            words=lambda step, g, k: int(20 * 1.35 ** max(step - 3, 0)) + 6 * k,
        )


FALLS = {
    "harder prompts": harder_prompts,
    "harder prompts of one source": harder_prompts_of_one_source,
    "a judge outage": judge_outage,
    "a drifted judge": judge_drift,
    "reward hacking by length": length_hacking,
}


@pytest.fixture(scope="session")
def prepare():
    """``prepare(name, folder)`` makes the run of that name; its reward falls at step 6."""

    def prepared(name, folder):
        FALLS[name](folder)
        return folder

    return prepared


def verdict_in_response(body, less=0):
    (quality,) = re.findall(r"q=(\d+)", asked(body))[-1:]
    return f"Fair enough.\nScore: {max(1, int(quality) - less)}"


def verdict_by_length(body):
    return f"So thorough!\nScore: {min(10, 3 + asked(body).count('really') // 10)}"


def asked(body):
    return body["messages"][-1]["content"]


def run(
    folder,
    judge=None,
    *,
    judge_url="",
    steps=range(1, STEPS + 1),
    sources=lambda step, g: "gsm8k",
    prompts=lambda step, g: f"question {step}-{g}",
    right=None,
    words=lambda step, g, k: 20,
    begin=lambda step: None,
    end=lambda step, rewards: None,
    judged=None,
    traffic=None,
):
    config = {
        "components": {
            "correct": {"scorer": "qa_em"},
            "quality": {"judge": "grader", "normalize": True, "weight": 0.5},
        },
        "judges": {
            "grader": {
                "endpoints": [
                    {"base_url": judge_url or judge.url, "model": "m", "api_key": "sk-test"}
                ],
                "verdict": {"integer": [1, 10]},
            }
            | (judged or {})
        },
        "traffic": {"hedge": "off"} | (traffic or {}),
        "on_failure": {"default": {"value": 0.0}},
        "cache": "off",
    }
    right = right or (
        lambda step, g, k: (g + k) % 8 != 0 if sources(step, g) == "gsm8k" else k == 0
    )
    with zerowait.open(config, record=folder) as rewards:
        for step in steps:
            begin(step)
            samples = []
            for g in range(GROUPS):
                for k in range(SIZE):
                    answer = "yes" if right(step, g, k) else "no"
                    filler = " really" * words(step, g, k)
                    samples.append(
                        Sample(
                            prompts(step, g),
                            f"q={6 + (g + k) % 3}{filler} <answer>{answer}</answer> {step} {k}",
                            "yes",
                            data_source=sources(step, g),
                            group=f"{step}-{g}",
                            group_size=SIZE,
                            step=step,
                        )
                    )
            rewards.score(samples)
            end(step, rewards)
