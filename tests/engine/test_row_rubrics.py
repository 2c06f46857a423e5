"""Judges that read each row's own rubric: what they are asked, and what becomes of their answers."""

import asyncio
import json
import math
import pickle
import random
import re
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

import zerowait
from zerowait import Abstain, Engine, Sample, Score
from zerowait.config import Endpoint, Judge, VerdictRule
from zerowait.judge import decode_reply, load_rubric, row_calls, row_rubric, whole_question
from zerowait.testing import FakeJudge, Script

WORDS = [f"word{number}" for number in range(30)]
SHOWN = re.compile(r"^(C\d+): says (word\d+)$", re.MULTILINE)
COUNTS = {"together": 1, "apart": None, "batch": 3}


def met_in(body: dict) -> dict[str, bool]:
    """The verdicts of a judge that looks whether the response has the criterion's word."""
    user = body["messages"][-1]["content"]
    response = re.search(r"<<<BEGIN RESPONSE \w+>>>\n(.*?)\n<<<END", user, re.DOTALL)[1].split()
    return {name: word in response for name, word in SHOWN.findall(user)}


def answer(body: dict) -> str:
    return json.dumps({n: {"reason": "seen", "met": m} for n, m in met_in(body).items()})


def rewards(samples, *, answering=answer, script=None, seen=None, component=None, **judge):
    async def score():
        async with Engine(config) as engine:
            return await engine.score_all(samples)

    with FakeJudge(script or Script(), answer=answering) as fake:
        verdict = {"rubric": "extra.rubric"} | judge.pop("verdict", {})
        one = {"endpoints": [{"base_url": fake.url, "model": "m"}], "verdict": verdict} | judge
        config = {
            "components": {"quality": {"judge": "quality"} | (component or {})},
            "judges": {"quality": one},
            "traffic": {"hedge": "off", "timeout_s": 60},
            "cache": "off",
            "on_failure": "neutral",
        }
        found = asyncio.run(score())
        if seen is not None:
            seen.append(fake.seen)
    return found


def rubric_rows(form: str, draw: random.Random) -> list[Sample]:
    """200 rows whose responses have some of their rubric's words."""
    rows = []
    for number in range(200):
        words = draw.sample(WORDS, draw.randint(2, 7))
        points = [draw.choice([-7, -2, 1, 3, 5, 8]) for _ in words]
        points[0] = abs(points[0])
        has = [draw.random() < 0.5 for _ in words]
        rubric = [
            {"criterion": f"says {w}", "points": p, "tags": [f"axis:{w[-1]}", "level:example"]}
            if form == "healthbench"
            else {"title": w, "description": f"says {w}", "weight": p, "category": None}
            for w, p in zip(words, points, strict=True)
        ]
        response = " ".join([f"row{number}", *(w for w, h in zip(words, has, strict=True) if h)])
        rows.append(Sample("Say words.", response, extra={"rubric": rubric}))
    return rows


def points_and_met(sample: Sample) -> list[tuple[int, bool]]:
    said = sample.response.split()
    return [
        (
            item.get("points", item.get("weight")),
            item.get("criterion", item.get("description"))[5:] in said,
        )
        for item in sample.extra["rubric"]
    ]


def by_points(pairs, *, clip=True) -> Fraction:
    value = Fraction(sum(p for p, met in pairs if met), sum(p for p, _ in pairs if p > 0))
    return min(max(value, Fraction(0)), Fraction(1)) if clip else value


@pytest.mark.parametrize("form", ["healthbench", "rar"])
@pytest.mark.parametrize(
    "ask", ["together", "apart", {"batch": 3}], ids=["together", "apart", "batch"]
)
def test_rewards_of_200_rows_are_those_computed_by_hand(form, ask):
    """Negative points included; and the judge is asked exactly the counted number of times."""
    rows, seen = rubric_rows(form, random.Random(3)), []
    found = rewards(rows, ask=ask, seen=seen)
    expected = [by_points(points_and_met(row)) for row in rows]
    assert [reward.value for reward in found] == pytest.approx([float(e) for e in expected])
    assert sum(e == 0 for e in expected) > 10  # some are clipped there, by negative points
    sizes = [len(row.extra["rubric"]) for row in rows]
    calls = {"together": len(rows), "apart": sum(sizes)}.get(
        str(ask), sum(-(-s // 3) for s in sizes)
    )
    assert seen[0].requests == calls


def test_the_ways_of_asking_agree_on_what_is_met():
    rows = rubric_rows("healthbench", random.Random(4))[:40]
    met = [
        [reward.components["quality"].detail["met"] for reward in rewards(rows, ask=ask)]
        for ask in ("together", "apart", {"batch": 2})
    ]
    assert met[0] == met[1] == met[2] == [[m for _, m in points_and_met(row)] for row in rows]


AGGREGATES = {
    "points": by_points,
    "weighted_mean": lambda pairs: Fraction(
        sum(abs(p) for p, met in pairs if met == (p > 0)), sum(abs(p) for p, _ in pairs)
    ),
    "all": lambda pairs: Fraction(all(met == (p > 0) for p, met in pairs)),
}


@pytest.mark.parametrize("aggregate", list(AGGREGATES))
def test_each_aggregate_is_its_formula(aggregate):
    rows = rubric_rows("rar", random.Random(5))[:60]
    found = rewards(rows, verdict={"aggregate": aggregate})
    expected = [float(AGGREGATES[aggregate](points_and_met(row))) for row in rows]
    assert [reward.value for reward in found] == pytest.approx(expected)
    assert len(set(expected)) > 1


def test_a_reward_that_is_not_clipped_may_be_negative():
    rows = rubric_rows("healthbench", random.Random(3))
    found = rewards(rows, verdict={"clip": False})
    expected = [float(by_points(points_and_met(row), clip=False)) for row in rows]
    assert [reward.value for reward in found] == pytest.approx(expected)
    assert min(expected) < 0


def test_the_judge_never_sees_points_and_reads_the_sample_first():
    bodies = []

    def watching(body):
        bodies.append(body)
        return answer(body)

    rubric = [
        {"criterion": "says word1", "points": 4711},
        {"criterion": "says word2", "points": -4711},
    ]
    sample = Sample("Say words.", "word1", extra={"rubric": rubric})
    rewards([sample], ask="apart", answering=watching)
    texts = [body["messages"][-1]["content"] for body in bodies]
    assert "4711" not in json.dumps(bodies)
    assert len({text.partition("C1: ")[0] for text in texts}) == 1
    assert all("END RESPONSE" in text.partition("C1: ")[0] for text in texts)
    assert len({json.dumps(body["messages"][0]) for body in bodies}) == 1


def test_implicit_asks_for_one_verdict_with_the_rubric_in_view():
    seen, asked = [], []

    def whole(body):
        asked.append(body["messages"][-1]["content"])
        return '{"reason": "", "score": 4}'

    rows = rubric_rows("rar", random.Random(6))[:3]
    found = rewards(rows, verdict={"aggregate": "implicit"}, answering=whole, seen=seen)
    assert [reward.value for reward in found] == pytest.approx([1 / 3] * 3)
    assert seen[0].requests == 3
    assert all(SHOWN.findall(text) for text in asked)


def leaving_out(word: str):
    """A judge that says nothing of the criteria with `word`."""

    def said(body):
        user = body["messages"][-1]["content"]
        named = dict(SHOWN.findall(user))
        kept = {n: {"reason": "", "met": m} for n, m in met_in(body).items() if named[n] != word}
        return json.dumps(kept) if kept else "Hmm."

    return said


RUBRIC = [
    {"criterion": "says word1", "points": 6},
    {"criterion": "says word2", "points": 3},
    {"criterion": "says word3", "points": -1},
]


@pytest.mark.parametrize("ask", ["together", "apart"])
def test_a_criterion_without_a_verdict_abstains_the_row(ask):
    sample = Sample("?", "word1 word2", extra={"rubric": RUBRIC})
    (found,) = rewards([sample], ask=ask, answering=leaving_out("word3"))
    outcome = found.components["quality"]
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "unparseable"
    assert outcome.detail.startswith("2 of 3 criteria were judged")


@pytest.mark.parametrize("ask", ["together", "apart"])
@pytest.mark.parametrize(("left_out", "value"), [("word3", 1.0), ("word2", 1.0), ("word1", None)])
def test_a_quorum_counts_the_points_of_the_criteria_that_were_judged(ask, left_out, value):
    """Those without a verdict count neither as met nor as missed."""
    sample = Sample("?", "word1 word2", extra={"rubric": RUBRIC})
    judge = {"verdict": {"quorum": 0.7}, "ask": ask, "answering": leaving_out(left_out)}
    (found,) = rewards([sample], **judge)
    assert found.value == value


def test_missing_verdicts_of_200_rows_are_never_zeros():
    rows = rubric_rows("healthbench", random.Random(8))
    found = rewards(rows, ask="apart", answering=leaving_out("word7"))
    for row, reward in zip(rows, found, strict=True):
        has = any(item["criterion"] == "says word7" for item in row.extra["rubric"])
        assert (reward.value is None) == has
        if not has:
            assert reward.value == pytest.approx(float(by_points(points_and_met(row))))


def test_metrics_are_the_shares_met_by_tag_under_the_same_names_for_every_row():
    rubric = [
        {"criterion": "says word1", "points": 1, "tags": ["axis:accuracy"]},
        {"criterion": "says word2", "points": 1, "tags": ["axis:accuracy", "theme:x"]},
        {"criterion": "says word3", "points": 1, "tags": ["theme:x"]},
    ]
    rows = [
        Sample("?", "word1", extra={"rubric": rubric}),
        Sample("?", "word1", extra={"rubric": rubric[:1]}),
    ]
    one, other = rewards(rows, verdict={"tags": ["axis:accuracy", "theme:x"]})
    assert one.metrics["quality/met"] == pytest.approx(1 / 3)
    assert one.metrics["quality/met/axis:accuracy"] == 0.5
    assert one.metrics["quality/met/theme:x"] == 0.0
    assert other.metrics["quality/met/theme:x"] is None
    assert one.metrics.keys() == other.metrics.keys()


def test_votes_on_a_rubric_are_pooled():
    sample = Sample("?", "word1", extra={"rubric": RUBRIC})
    judge = {"votes": {"n": 3}, "temperature": 1.0}
    (found,) = rewards([sample], **judge)
    assert found.value == pytest.approx(6 / 9)
    assert found.components["quality"].detail["votes"] == pytest.approx([6 / 9] * 3)


@pytest.mark.parametrize("structured", ["openai", "ignored", "vllm"])
def test_a_judge_without_structured_output_says_yes_or_no(structured):
    def lines(body):
        if "response_format" in body:
            return answer(body)
        said = "\n".join(f"{n}: {'yes' if m else 'no'}" for n, m in met_in(body).items())
        return f"I looked at each.\n{said}"

    rows = rubric_rows("healthbench", random.Random(9))[:20]
    found = rewards(rows, answering=lines, script=Script(structured=structured))
    expected = [float(by_points(points_and_met(row))) for row in rows]
    assert [reward.value for reward in found] == pytest.approx(expected)


def test_a_rubric_in_the_shape_of_a_data_frame_is_read():
    """verl's rows: JSON text, arrays, and structs with a null for each key of another row."""
    np = pytest.importorskip("numpy")
    plain = [{"criterion": "says word1", "points": 2.0}, {"criterion": "says word2", "points": 3.0}]
    nulls = [item | {"title": None, "weight": None, "tags": None} for item in plain]
    tagged = [item | {"tags": np.array(["axis:a"], dtype=object)} for item in plain]
    shapes = [
        plain,
        json.dumps(plain),
        [json.dumps(item) for item in plain],
        np.array(nulls, dtype=object),
        np.array(tagged, dtype=object),
        {"rubrics": plain},
        tuple(plain),
        [
            {"criterion": "says word1", "points": np.float32(2)},
            {"criterion": "says word2", "points": "3"},
        ],
    ]
    rows = [Sample(f"{n}", "word1", extra={"rubric": shape}) for n, shape in enumerate(shapes)]
    assert [reward.value for reward in rewards(rows)] == pytest.approx([0.4] * len(shapes))


def test_a_rubric_of_parquet_is_read(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    mixed = [
        [{"criterion": "says word1", "points": 2}, {"criterion": "says word2", "points": 3}],
        [
            {"title": "t", "description": "says word1", "weight": 2},
            {"description": "says word2", "weight": 3},
        ],
    ]
    parquet.write_table(arrow.table({"rubric": mixed}), tmp_path / "rows.parquet")
    read = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    rows = [Sample(f"{n}", "word1", extra=row) for n, row in enumerate(read)]
    assert [reward.value for reward in rewards(rows)] == pytest.approx([0.4, 0.4])


def test_categories_give_points_to_criteria_without():
    rubric = [
        {"description": "says word1", "category": "Essential"},
        {"description": "says word2", "category": "Optional"},
        {"description": "says word3", "category": "Pitfall"},
    ]
    sample = Sample("?", "word1 word3", extra={"rubric": rubric})
    assert rewards([sample])[0].value == pytest.approx((1.0 - 0.9) / 1.3)
    own = {"categories": {"pitfall": -0.5, "optional": 1}}
    assert rewards([sample], verdict=own)[0].value == pytest.approx((1.0 - 0.5) / 2)


def test_a_rubric_that_a_reader_has_turned_inside_out_keeps_its_points():
    """A mapping of lists is what data sets make of a sequence of mappings."""
    columns = {"criteria": ["says word1", "says word2"], "points": [2, 3]}
    shapes = [
        columns,
        json.dumps(columns),
        {"rubric": columns["criteria"], "weights": [2.0, 3.0]},
        {"description": columns["criteria"], "weight": [2, 3], "tags": [["a"], None], "title": []}
        | {"title": ["t", "u"]},
        json.dumps([{"criterion": "says word1", "points": 2, "tags": math.nan}]).replace(
            "}]", '}, {"criterion": "says word2", "points": 3}]'
        ),
    ]
    rows = [Sample(f"{n}", "word1", extra={"rubric": shape}) for n, shape in enumerate(shapes)]
    assert [reward.value for reward in rewards(rows)] == pytest.approx([0.4] * len(shapes))


@pytest.mark.parametrize(
    "pitfall",
    [
        {"category": "Pitfall Criteria"},
        {"description": "**Pitfall Criteria**: says word2"},
        {"description": "Pitfall - says word2"},
    ],
)
def test_a_category_is_known_however_it_is_written(pitfall):
    item = {"description": "says word2"} | pitfall
    (_, criterion) = row_rubric(
        Sample("?", "", extra={"rubric": ["says word1", item]}), VerdictRule(rubric="extra.rubric")
    )
    assert criterion.points == -0.9


def test_tags_may_be_a_mapping_or_have_nulls():
    rubric = [
        {"criterion": "x", "tags": {"verifier": "llm", "function": "", "parameters": None}},
        {"criterion": "y", "tags": ["axis:a", None]},
    ]
    found = row_rubric(
        Sample("?", "", extra={"rubric": rubric}), VerdictRule(rubric="extra.rubric")
    )
    assert [criterion.tags for criterion in found] == [("verifier:llm",), ("axis:a",)]


def saying(text: str):
    """What becomes of a reply to a rubric of two criteria."""
    sample = Sample("?", "x", extra={"rubric": ["says word1", "says word2"]})
    (found,) = rewards([sample], answering=lambda _: text)
    return found.components["quality"]


@pytest.mark.parametrize(
    "text",
    [
        '{"C1": true, "C1": false, "C2": true}',
        '{"C1": {"met": true, "met": false}, "C2": true}',
        '{"C0": true, "C1": false, "C2": true}',
        '{"C1": true, "C2": true, "C3": false}',
        "C1: yes\nC2: yes\nC3: no",
        '{"C1": true, "C2": true} Wait, C2 is actually false.',
        "C1: yes\nC2: no\n</think>\nC1: no\nC2: yes",
    ],
)
def test_a_reply_that_may_be_about_other_criteria_or_says_two_things_abstains(text):
    outcome = saying(text)
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "unparseable"


def test_half_a_character_in_a_reason_costs_no_verdict():
    outcome = saying(
        '{"C1": {"reason": "\\ud83d", "met": true}, "C2": {"reason": "", "met": false}}'
    )
    assert (outcome.value, outcome.why) == (0.5, "C1: \ufffd")


WRONG = {
    "blank": (["x", " \u200b"], "extra.rubric[1]: its text is"),
    "mistyped points": (
        [{"criterion": "x", "wieght": 5}],
        "extra.rubric[0]: has no points but 'wieght'; did you mean 'weight'?",
    ),
    "too many points": ([{"criterion": "x", "points": 1e308}], "extra.rubric[0].points: is beyond"),
    "columns of two lengths": (
        {"criterion": ["x", "y"], "points": [1]},
        "extra.rubric: its lists do not belong together",
    ),
    "no list": ("says word1", "extra.rubric: must be a list of criteria"),
    "nothing": (None, "extra.rubric: must be a list of criteria"),
    "empty": ([], "extra.rubric: has no criterion"),
    "no text": ([{"criterium": "x", "points": 1}], "extra.rubric[0]: has no text under criterion"),
    "not finite": (
        [{"criterion": "x", "points": "many"}],
        "extra.rubric[0].points: must be a finite",
    ),
    "true": ([{"criterion": "x", "points": True}], "extra.rubric[0].points: must be a finite"),
    "a number": (["x", 7], "extra.rubric[1]: must be a text or a mapping"),
    "tags": (
        [{"criterion": "x", "tags": 7}],
        "extra.rubric[0].tags: must be a text or a list",
    ),
    "all negative": ([{"criterion": "x", "points": -1}], "extra.rubric: no criterion has positive"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_malformed_rubric_abstains_and_names_the_criterion(name):
    value, problem = WRONG[name]
    seen = []
    (found,) = rewards([Sample("?", "x", extra={"rubric": value})], seen=seen)
    outcome = found.components["quality"]
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "bad_input"
    assert outcome.detail.startswith(problem)
    assert seen[0].requests == 0


def test_a_column_that_is_not_there_names_the_nearest():
    (found,) = rewards([Sample("?", "x", extra={"rubrics": RUBRIC})])
    assert (
        "this row has no such column; did you mean 'rubrics'?" in found.components["quality"].detail
    )


def test_a_criterion_is_text_and_nothing_else():
    """Placeholders, line breaks and control tokens in it neither fill nor end anything."""
    texts = []

    def watching(body):
        texts.append(body["messages"][-1]["content"])
        return '{"C1": true, "C2": false}'

    rubric = ["says {{response}}\n\nC9: word9 {{nothing}}", "ends <|im_end|> here"]
    (found,) = rewards([Sample("?", "x", extra={"rubric": rubric})], answering=watching)
    assert found.value == 0.5
    assert "C1: says {{response}} C9: word9 {{nothing}}\n" in texts[0]
    assert "<|im_end|>" not in texts[0]


def test_a_change_of_points_asks_nothing_anew(tmp_path):
    def with_points(points):
        return Sample(
            "?",
            "word1",
            extra={
                "rubric": [
                    {"criterion": f"says word{n}", "points": p} for n, p in enumerate(points)
                ]
            },
        )

    async def score(config, *samples):
        async with Engine(config) as engine:
            return [(await engine.score(sample)).value for sample in samples]

    with FakeJudge(Script(), answer=answer) as fake:
        config = {
            "components": {"q": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": fake.url, "model": "m"}],
                    "verdict": {"rubric": "extra.rubric"},
                }
            },
            "cache": {"path": str(tmp_path / "c.db")},
            "traffic": {"hedge": "off"},
        }
        values = asyncio.run(score(config, with_points([1, 1]), with_points([3, 1])))
        assert values == [0.5, 0.25]
        assert asyncio.run(score(config, with_points([1, 3]))) == [0.75]
        assert fake.seen.requests == 1


def test_a_score_survives_the_records(tmp_path):
    sample = Sample("?", "word1", extra={"rubric": RUBRIC})
    outcome = rewards([sample])[0].components["quality"]
    assert isinstance(outcome, Score)
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Score) == outcome


J = {"endpoints": [{"base_url": "http://127.0.0.1:1/v1", "model": "m"}]}
REFUSED = [
    (
        {"verdict": {"rubric": "rubric"}},
        "rubric is the column of each row's own criteria, such as extra.rubric",
    ),
    ({"verdict": {"rubric": "extra.r", "aggregate": "mean"}}, "aggregate"),
    (
        {"verdict": {"integer": [1, 5], "aggregate": "points"}},
        "aggregate goes with rubric: extra.NAME only",
    ),
    ({"verdict": {"integer": [1, 5], "quorum": 0.5}}, "quorum goes with"),
    ({"verdict": {"rubric": "extra.r", "quorum": 1.5}}, "quorum must be in (0, 1]"),
    (
        {"verdict": {"rubric": "extra.r", "aggregate": "implicit"}, "ask": "apart"},
        "ask is for verdicts on each criterion",
    ),
    ({"verdict": {"rubric": "extra.r"}, "ask": {"batch": 0}}, "batch"),
    (
        {"verdict": {"rubric": "extra.r"}, "rubric": "quality"},
        "does not show the row's own criteria",
    ),
    ({"verdict": {"integer": [1, 5]}, "rubric": "row_rubric"}, "verdict: {rubric: extra.NAME}"),
    ({"verdict": {"rubric": "extra.r"}, "monitor": {}}, "monitor makes one prediction"),
    (
        {"verdict": {"integer": [1, 5]}, "rubric": "tool_criteria", "ask": {"batch": 2}},
        "is for the row's own criteria",
    ),
]


@pytest.mark.parametrize(("judge", "problem"), REFUSED)
def test_settings_that_do_not_fit_are_refused(judge, problem):
    config = {"components": {"q": {"judge": "q"}}, "judges": {"q": J | judge}}
    with pytest.raises(zerowait.ConfigError, match=re.escape(problem)):
        Engine(config)


@pytest.mark.parametrize("verdict", [{}, {"quorum": 0.5}, {"aggregate": "implicit"}])
def test_the_reader_of_a_rows_question_travels_to_the_shard_that_owns_its_key(verdict):
    rule = VerdictRule(rubric="extra.rubric", **verdict)
    judge = Judge(endpoints=[Endpoint(base_url="http://127.0.0.1:1/v1", model="m")], verdict=rule)
    rubric = load_rubric(judge.rubric, base=Path())
    criteria = row_rubric(Sample("?", "x", extra={"rubric": RUBRIC}), rule)
    if rule.aggregation == "implicit":
        question, said = whole_question(judge, rubric, criteria), '{"score": 10}'
    else:
        question, said = row_calls(judge, rubric, criteria)[0].question, '{"C1": true, "C2": 1}'
    for each in (question, question.fallback):
        there = pickle.loads(pickle.dumps(each.read))
        reply = decode_reply(json.dumps({"choices": [{"message": {"content": said}}]}).encode())
        assert there(reply) == each.read(reply)
