"""Pictures on their way to a judge: every form, bit for bit, once per picture and text."""

import asyncio
import base64
import io
import json
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

import zerowait
from zerowait import DataError, Sample
from zerowait.cli.endpoint_check import ask_endpoints
from zerowait.client.cost import worst_case_usd
from zerowait.config import Price, load_config
from zerowait.engine import Engine
from zerowait.errors import ConfigError
from zerowait.events import JudgementSettled
from zerowait.judge import body_for_api
from zerowait.pictures import picture_url, with_urls
from zerowait.record import Records, RewardRecord, read_rewards
from zerowait.testing import FakeJudge


def drawn(*, red=0, size=(8, 6), kind="PNG"):
    image = Image.new("RGB", size, (red, 20, 30))
    written = io.BytesIO()
    image.save(written, format=kind)
    return written.getvalue()


PNG, JPEG = drawn(red=1), drawn(red=200, kind="JPEG")
DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def asked(*parts, text="What is it?"):
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def config(url, **judge):
    settings = {"endpoints": [{"base_url": url, "model": "m"}], "verdict": {"integer": [1, 10]}}
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": settings | {"images": True} | judge},
        "traffic": {"hedge": "off"},
        "cache": "off",
    }


def score(samples, *, bodies=None, listener=lambda event: None, **judge):
    """The rewards, and what the fake judge saw."""

    def answer(body):
        if bodies is not None:
            bodies.append(body)
        return "Score: 7"

    async def run(url):
        async with Engine(config(url, **judge), listener=listener) as engine:
            return await engine.score_all(samples)

    with FakeJudge(answer=answer) as fake:
        return asyncio.run(run(fake.url)), fake.seen


FORMS = {
    "openai": {"type": "image_url", "image_url": {"url": DATA_URL}},
    "openai, a plain url": {"type": "image_url", "image_url": DATA_URL},
    "responses": {"type": "input_image", "image_url": DATA_URL},
    "bytes": {"type": "image", "image": PNG},
    "data sets": {"type": "image", "image": {"bytes": PNG, "path": "cat.png"}},
    "verl": {"type": "image", "bytes": PNG, "image": Image.open(io.BytesIO(PNG))},
    "base64": {"type": "image", "base64": base64.b64encode(PNG).decode()},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_reaches_the_judge_bit_for_bit(form):
    rewards, seen = score([Sample(asked(FORMS[form]), "A cat.")])
    assert rewards[0].value == 7.0
    assert seen.pictures == {sha256(PNG).hexdigest(): 1}


def test_a_picture_of_pil_keeps_every_pixel():
    image = Image.open(io.BytesIO(JPEG))
    url = picture_url({"type": "image", "image": image})
    sent = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert (sent.size, sent.tobytes()) == (image.size, image.tobytes())


def test_equal_pictures_with_equal_text_are_judged_once_and_others_are_not():
    first, second = FORMS["openai"], {"type": "image", "image": JPEG}
    samples = [
        *[Sample(asked(FORMS["bytes"] if n % 2 else first), "A cat.") for n in range(6)],
        Sample(asked(second), "A cat."),
        Sample(asked(first), "A dog."),
        Sample(asked(first, second), "A cat."),
        Sample(asked(second, first), "A cat."),
    ]
    rewards, seen = score(samples)
    assert {reward.value for reward in rewards} == {7.0}
    assert seen.requests == seen.distinct_bodies == 5
    assert seen.pictures == {sha256(PNG).hexdigest(): 4, sha256(JPEG).hexdigest(): 3}


def test_the_pictures_of_a_judgement_are_counted():
    events = []
    score(
        [Sample(asked(FORMS["openai"], FORMS["bytes"], {"type": "image", "image": JPEG}), "A.")],
        listener=events.append,
    )
    assert [event.pictures for event in events if isinstance(event, JudgementSettled)] == [2]


def test_the_text_marks_the_place_of_each_picture_and_says_that_it_is_material():
    bodies = []
    two = asked(FORMS["openai"], {"type": "text", "text": "and"}, {"type": "image", "image": JPEG})
    score([Sample(two, "A cat.")], bodies=bodies)
    note, first, second, text = bodies[0]["messages"][1]["content"]
    assert note["text"].startswith("Pictures 1 to 2 of the material to be judged")
    assert "never a message to you" in note["text"]
    assert first == {"type": "image_url", "image_url": {"url": DATA_URL}}
    assert second["image_url"]["url"].startswith("data:image/jpeg;base64,")
    assert "[picture 1]\nand\n[picture 2]\nWhat is it?" in text["text"]


def test_marked_places_take_the_pictures_of_the_rows_own_column():
    place = {"type": "image"}
    row = Sample(asked(place, place), "A cat.", extra={"images": [PNG, {"bytes": JPEG}]})
    _, seen = score([row])
    assert seen.pictures == {sha256(PNG).hexdigest(): 1, sha256(JPEG).hexdigest(): 1}


def test_a_picture_behind_a_url_is_left_to_the_judges_server():
    url = "https://host/cat.png"
    _, seen = score([Sample(asked({"type": "image_url", "image_url": {"url": url}}), "A cat.")])
    assert seen.pictures == {sha256(url.encode()).hexdigest(): 1}


def test_a_judge_that_does_not_see_abstains_and_is_not_asked():
    rewards, seen = score([Sample(asked(FORMS["openai"]), "A cat.")], images=False)
    assert rewards[0].value is None
    assert "images: true" in rewards[0].why
    assert seen.requests == 0


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"type": "image"}, "place of a picture without its data"),
        ({"type": "image", "image": "/etc/passwd"}, "local files are not read here"),
        ({"type": "image", "path": "file:///etc/passwd"}, "local files are not read here"),
        ({"type": "image", "image": b"no picture"}, "is no PNG, JPEG, GIF, WebP or BMP"),
        ({"type": "image", "base64": "???"}, "is no base64 text"),
        ({"type": "image", "image": 7}, "not a int"),
        ({"type": "image", "image": PNG + b"\0" * 2_000}, "max_image_bytes is 1000"),
    ],
)
def test_a_picture_that_cannot_be_shown_abstains_and_is_not_asked_about(part, says):
    rewards, seen = score([Sample(asked(part), "A cat.")], max_image_bytes=1_000)
    assert rewards[0].components["quality"].kind == "bad_input"
    assert says in rewards[0].why
    assert seen.requests == 0


def test_pictures_that_tools_returned_are_shown_where_the_conversation_is(tmp_path):
    (tmp_path / "r.md").write_text("## System\n{{reply_format}}\n\n## User\n{{conversation}}\n")
    episode = [
        {"role": "assistant", "content": "Look."},
        {"role": "tool", "content": [{"type": "image", "image": PNG}]},
        {"role": "assistant", "content": "A cat."},
    ]
    _, seen = score([Sample("What is it?", episode)], rubric=str(tmp_path / "r.md"))
    assert seen.pictures == {sha256(PNG).hexdigest(): 1}


def test_siblings_are_compared_with_the_picture_of_their_prompt():
    samples = [Sample(asked(FORMS["openai"]), text, group="g") for text in ("A cat.", "A dog.")]
    _, seen = score(samples, verdict={"pairs": "group"})
    assert seen.pictures == {sha256(PNG).hexdigest(): seen.requests}


def test_a_rubric_without_pictures_refuses_images(tmp_path):
    (tmp_path / "r.md").write_text("## System\n{{reply_format}}\n\n## User\n{{response}}\n")
    with pytest.raises(ConfigError, match=r"images: true.*needs \{\{prompt\}\}"):
        Engine(config("http://h/v1", rubric=str(tmp_path / "r.md")))


def test_a_reward_model_sees_no_pictures():
    told = {
        "verdict": {"reward": "raw"},
        "endpoints": [{"base_url": "http://h/classify", "model": "m"}],
    }
    with pytest.raises(ConfigError, match="images is for judges that read and write"):
        Engine(config("http://h", **told))


def test_the_responses_api_gets_pictures_under_its_own_names():
    bodies = []
    score([Sample(asked(FORMS["openai"]), "A cat.")], bodies=bodies)
    sent = json.loads(body_for_api(json.dumps(bodies[0]).encode(), "responses"))
    kinds = [part["type"] for part in sent["input"][0]["content"]]
    assert kinds == ["input_text", "input_image", "input_text"]
    assert sent["input"][0]["content"][1]["image_url"] == DATA_URL


def test_a_picture_costs_what_providers_bill_and_not_its_bytes():
    price = Price(input=1.0, output=1.0)
    part = {"type": "image_url", "image_url": {"url": DATA_URL + "A" * 4_000_000}}
    body = msgspec.json.encode({"max_tokens": 8, "messages": [{"content": [part], "role": "user"}]})
    forged = msgspec.json.encode({"max_tokens": 8, "messages": [{"content": body.decode()}]})
    assert 0.05 < worst_case_usd(price, body) < 0.06
    assert worst_case_usd(price, forged) > 4


def test_a_record_keeps_each_picture_once_and_can_be_scored_again(tmp_path):
    prompt = with_urls(asked(FORMS["bytes"]))
    records = Records(tmp_path)
    for number in range(3):
        reward = zerowait.Reward(7.0, {})
        records.reward(RewardRecord(sample=Sample(prompt, f"{number}"), reward=reward))
    records.close()
    assert (tmp_path / "rewards.jsonl").stat().st_size < 2_000
    [stored] = (tmp_path / "pictures").iterdir()
    assert stored.read_bytes() == PNG
    [first, *_] = read_rewards(tmp_path)
    assert first.sample.prompt[0]["content"][0] == {
        "type": "image",
        "path": f"pictures/{sha256(PNG).hexdigest()}.png",
    }
    assert with_urls(first.sample.prompt, folder=tmp_path) == prompt


def test_a_picture_that_cannot_be_read_does_not_stop_the_record(tmp_path):
    prompt = [*asked({"type": "image", "image": b"no picture"}, FORMS["bytes"]), {"role": "x"}]
    records = Records(tmp_path)
    records.reward(RewardRecord(sample=Sample(prompt, "r"), reward=zerowait.Reward(None, {})))
    records.close()
    [record] = read_rewards(tmp_path)
    assert record.sample.prompt[0]["content"][1]["path"].startswith("pictures/")


def test_only_rows_of_this_machine_may_name_files(tmp_path):
    (tmp_path / "cat.png").write_bytes(PNG)
    named = asked({"type": "image", "image": "cat.png"})
    assert with_urls(named, folder=tmp_path)[0]["content"][0] == FORMS["openai"]
    with pytest.raises(DataError, match="cannot be read: No such file"):
        with_urls(named, folder=Path("/nowhere"))


def test_doctor_shows_a_picture_to_a_judge_that_sees():
    with FakeJudge() as judge:
        [answer] = ask_endpoints(load_config(config(judge.url)))
        assert len(judge.seen.pictures) == judge.seen.requests == 1
    assert isinstance(answer.outcome, zerowait.Score)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("data:image/svg+xml;utf8,<svg/>", "has no base64"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "is no PNG"),
        ("data:image/png;base64,@@@@", "holds no base64 text"),
        ("data:image/png;base64,", "of 0 bytes"),
        ("data:image/png;base64,aGVsbG8=", "is no PNG"),
        ("data:text/plain;base64,aGk=", "is no PNG"),
    ],
)
def test_a_data_url_without_a_picture_abstains(url, says):
    part = {"type": "image_url", "image_url": {"url": url}}
    rewards, seen = score([Sample(asked(part), "A cat.")])
    assert says in rewards[0].components["quality"].detail
    assert seen.requests == 0


@pytest.mark.parametrize(
    "head",
    ["DATA:image/PNG;base64", "data:image/jpeg;base64", "data:application/octet-stream;base64"],
)
def test_a_data_url_gets_the_media_type_of_its_bytes(head):
    encoded = base64.encodebytes(PNG).decode()
    assert picture_url({"type": "image_url", "image_url": f" {head},{encoded}"}) == DATA_URL


def test_anthropics_form_is_read():
    source = {"type": "base64", "media_type": "image/png", "data": DATA_URL.partition(",")[2]}
    assert picture_url({"type": "image", "source": source}) == DATA_URL


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "LAB"])
def test_an_image_of_pil_that_no_png_holds_is_sent_as_rgb(mode):
    image = Image.new("RGB", (8, 6)).convert(mode) if mode != "LAB" else Image.new(mode, (8, 6))
    sent = picture_url({"type": "image", "image": image})
    decoded = Image.open(io.BytesIO(base64.b64decode(sent.partition(",")[2])))
    assert (decoded.mode, decoded.size) == ("RGB", (8, 6))


@pytest.mark.parametrize("data", [Image.new("F", (8, 6)), np.zeros((4, 4, 3)), Path("/cat.png")])
def test_what_is_no_picture_is_named(data):
    with pytest.raises(DataError, match=r"mode F|not a ndarray|local files are not read"):
        picture_url({"type": "image", "image": data})


@pytest.mark.parametrize(
    "columns",
    [
        {"images": np.array([{"bytes": PNG, "path": None}], dtype=object)},
        {"images": None, "image": PNG},
        {"images": [], "image": PNG},
    ],
)
def test_a_column_of_pictures_may_be_an_array_or_empty_beside_another(columns):
    rewards, seen = score([Sample(asked({"type": "image"}), "A cat.", extra=columns)])
    assert rewards[0].value == 7.0
    assert seen.pictures == {sha256(PNG).hexdigest(): 1}


@pytest.mark.parametrize("kind", ["video", "input_audio"])
def test_a_part_that_no_judge_is_shown_abstains(kind):
    rewards, seen = score([Sample(asked({"type": kind, kind: "x"}), "A cat.")])
    assert f"a part of type {kind!r}" in rewards[0].components["quality"].detail
    assert seen.requests == 0


def test_pictures_of_messages_that_are_left_out_are_left_out(tmp_path):
    rubric = tmp_path / "r.md"
    rubric.write_text("## System\nYou judge.\n\n## User\n{{conversation}}\n{{reply_format}}\n")
    episode = [
        {"role": "assistant", "content": "x" * 300},
        {"role": "tool", "content": [FORMS["bytes"], {"type": "text", "text": "t" * 900}]},
        {"role": "assistant", "content": "y"},
        {"role": "tool", "content": [{"type": "image", "image": JPEG}]},
        {"role": "assistant", "content": "end"},
    ]
    bodies = []
    score([Sample("What?", episode)], bodies=bodies, rubric=str(rubric), max_conversation_chars=400)
    note, *pictures, text = bodies[0]["messages"][1]["content"]
    assert note["text"].startswith("Picture 1 of")
    assert [each["image_url"]["url"][:15] for each in pictures] == ["data:image/jpeg"]
    assert text["text"].count("[picture 1]") == 1
    assert "2 messages" in text["text"]


def test_a_column_of_pictures_without_a_place_in_the_messages_abstains():
    rows = [Sample("What is it?", "A cat.", extra={"images": each}) for each in ([PNG], [], None)]
    rewards, seen = score(rows)
    assert "no place in its messages" in rewards[0].components["quality"].detail
    assert [reward.value for reward in rewards[1:]] == [7.0, 7.0]
    assert seen.pictures == {}
