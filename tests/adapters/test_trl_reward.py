"""The reward function for TRL, called as TRL calls it, and by TRL's own trainer."""

import asyncio
import math
import pickle
import shutil
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

import zerowait
import zerowait.trl
from zerowait import ConfigError, DataError
from zerowait.record import open_index, read_rewards
from zerowait.testing import FakeJudge, Script, Status

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT, WRONG = "<answer>Paris</answer>", "<answer>Rome</answer>"


def call(function, completions, prompts=None, **columns):
    prompts = prompts or ["Capital?"] * len(completions)
    return asyncio.run(function(prompts=prompts, completions=completions, **columns))


@pytest.fixture
def reward():
    made = []

    def make(config=RULE, **arguments):
        made.append(zerowait.trl.reward(config, **arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_each_row_gets_its_value(reward):
    assert call(reward(), [RIGHT, WRONG], ground_truth=["Paris", "Paris"]) == [1.0, 0.0]


@pytest.mark.parametrize("column", ["ground_truth", "solution", "answer"])
def test_the_gold_answer_is_found_under_the_names_that_data_sets_use(reward, column):
    assert call(reward(), [RIGHT], **{column: ["Paris"]}) == [1.0]


def test_a_column_of_any_name_can_be_the_gold_answer(reward):
    function = reward(columns={"ground_truth": "gold"})
    assert call(function, [RIGHT], gold=["Paris"], answer=["Rome"]) == [1.0]
    with pytest.raises(DataError, match="no column 'gold'; did you mean 'golds'"):
        call(function, [RIGHT], golds=["Paris"])
    with pytest.raises(ConfigError, match="no field 'ground_thruth'; did you mean 'ground_truth'"):
        reward(columns={"ground_thruth": "gold"})


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ([{"role": "assistant", "content": RIGHT}], 1.0),
        ([{"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}], 1.0),
        ([{"role": "assistant", "content": None, "tool_calls": []}], 0.0),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]},
                {"role": "tool", "name": "search", "content": WRONG},
                {"role": "assistant", "content": RIGHT},
            ],
            1.0,
        ),
    ],
)
def test_chat_completions_are_judged_by_the_last_thing_the_policy_said(reward, completion, value):
    prompts = [[{"role": "user", "content": "Capital?"}]]
    assert call(reward(), [completion], prompts, solution=["Paris"]) == [value]


def test_a_judge_reads_the_episode_that_tools_were_part_of(reward, judged, tmp_path):
    (tmp_path / "rubric.md").write_text(
        "## System\nJudge.\n\n## User\n{{conversation}}\n\n{{reply_format}}\n"
    )
    calls = [{"type": "function", "function": {"name": "search", "arguments": {"q": "capital"}}}]
    episode = [
        {"role": "assistant", "content": "I look it up.", "tool_calls": calls},
        {"role": "tool", "name": "search", "content": "the tool's words"},
        {"role": "assistant", "content": RIGHT},
    ]
    prompts = [[{"role": "user", "content": "Capital?"}]]
    with FakeJudge() as judge:
        config = judged(judge)
        config["judges"]["q"]["rubric"] = str(tmp_path / "rubric.md")
        function = reward(config, record=tmp_path / "run")
        call(function, [episode], prompts, completion_ids=[[1, 2, 3]])
        function.close()
    (row,) = read_rewards(tmp_path / "run")
    assert row.sample.response == RIGHT
    assert row.sample.response_messages == episode
    asked = (tmp_path / "run" / "judgements.jsonl").read_text()
    assert all(said in asked for said in ("I look it up.", "the tool's words", "Paris"))


def test_data_that_no_row_can_be_scored_by_stops_the_training(reward, judged):
    """Here pictures, for a judge that was not said to see them."""
    shown = {"type": "image", "image": "data:image/png;base64,iVBORw0KGgo="}
    prompts = [[{"role": "user", "content": [shown, {"type": "text", "text": "What is it?"}]}]] * 8
    said = [f"response {n}" for n in range(8)]
    with FakeJudge() as judge:
        function = reward(judged(judge, traffic={"give_up_after": 20}))
        for _ in range(2):
            assert call(function, said, prompts) == [None] * 8
        with pytest.raises(DataError, match=r"quality: none of the first 24 rows.*images: true"):
            call(function, said, prompts)
        goes_on = reward(judged(judge, traffic={"give_up_after": 20}))
        assert call(goes_on, ["a response"])[0] is not None
        chosen = {"default": "neutral", "bad_input": {"value": 3}}
        valued = reward(judged(judge, traffic={"give_up_after": 20}, on_failure=chosen))
        for _ in range(4):
            assert call(goes_on, said, prompts) == [None] * 8
            assert call(valued, said, prompts) == [3] * 8


def test_an_abstention_is_none_and_never_zero(reward, judged):
    fails = Status(status=500, share=0.5, always=True)
    with FakeJudge(Script(faults=(fails,))) as judge:
        values = call(reward(judged(judge)), [f"response {n}" for n in range(32)])
    assert {value is None for value in values} == {True, False}
    assert all(value is None or value > 0 for value in values)


def test_other_functions_are_added_and_an_abstention_stays_none(reward, judged):
    async def length(completions, **_):
        return [float(len(completion)) for completion in completions]

    def sometimes(completions, **_):
        return [None] * len(completions)

    fails = Status(status=500, share=0.5, always=True)
    rows = [f"response {n}" for n in range(32)]
    with FakeJudge(Script(faults=(fails,))) as judge:
        alone = call(reward(judged(judge)), rows)
        summed = call(reward(judged(judge), others=[(length, 0.5), sometimes]), rows)
    expected = [None if v is None else v + len(r) / 2 for v, r in zip(alone, rows, strict=True)]
    assert summed == expected


def test_a_function_beside_it_in_the_trainer_is_refused(reward):
    function = reward()
    trainer = SimpleNamespace(
        reward_funcs=[function, len],
        reward_func_names=["zerowait", "len"],
        model=SimpleNamespace(training=True),
        num_generations=1,
    )
    trainer.log = lambda name, value: None
    log_metric = type("Bound", (), {"__self__": trainer, "__call__": lambda *_: None})()
    with pytest.raises(ConfigError, match=r"'len' beside 'zerowait'.*others="):
        call(function, [RIGHT], solution=["Paris"], log_metric=log_metric)


def test_the_policies_that_trl_cannot_carry_out_are_refused(reward):
    with pytest.raises(ConfigError, match=r"on_failure.default is 'mask', which TRL cannot do"):
        reward(RULE | {"on_failure": {"default": "mask"}})
    with pytest.raises(ConfigError, match=r"on_failure.timeout is 'mask'"):
        reward(RULE | {"on_failure": {"default": "neutral", "timeout": "mask"}})


class Trainer:
    """What the function reads of a trainer; it is told of it by the method for metrics."""

    def __init__(self, *functions, step=0, remove_unused_columns=False):
        self.reward_funcs, self.num_generations = list(functions), 1
        self.model = SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1)
        self.state = SimpleNamespace(global_step=step)
        self.args = SimpleNamespace(remove_unused_columns=remove_unused_columns)

    def log_metric(self, name, value):
        pass


@pytest.mark.parametrize(
    ("scorer", "columns", "dropped", "message"),
    [
        (
            {"scorer": "qa_em"},
            {"target": ["Paris"]},
            False,
            "answer: ground_truth is missing.*the data has 'target'; .*columns={'ground_truth'",
        ),
        (
            {"scorer": "qa_em"},
            {},
            True,
            "ground_truth is missing.*no other columns; remove_unused_columns=True",
        ),
        (
            {"scorer": "column", "key": "score"},
            {"scores": [0.5]},
            False,
            "extra.score is missing; .*the data has 'scores'",
        ),
    ],
)
def test_a_column_that_the_data_does_not_have_stops_the_training_at_its_first_batch(
    reward, scorer, columns, dropped, message
):
    function = reward({"components": {"answer": scorer}})
    trainer = Trainer(function, remove_unused_columns=dropped)
    with pytest.raises(DataError, match=message):
        call(function, [RIGHT], log_metric=trainer.log_metric, **columns)


def test_a_column_that_is_empty_in_the_first_rows_is_a_column(reward):
    assert call(reward(), [RIGHT], solution=[None]) == [None]
    column = {"scorer": "column", "key": "score"}
    assert call(reward({"components": {"given": column}}), [RIGHT], score=[None]) == [None]


def test_first_batches_that_come_together_share_one_engine_and_its_limits(reward, judged):
    """Batches of an asynchronous trainer, scored before the rewards were opened."""
    rows = [[f"response {batch}-{row}" for row in range(4)] for batch in range(4)]

    async def at_once(function):
        async with asyncio.TaskGroup() as group:
            for each in rows:
                group.create_task(function(prompts=["Capital?"] * 4, completions=each))

    with FakeJudge() as judge:
        traffic = {"concurrency": 1, "hedge": "off"}
        asyncio.run(at_once(reward(judged(judge, traffic=traffic))))
        assert (judge.seen.answered, judge.seen.peak_in_flight) == (16, 1)


def test_rows_that_are_not_made_of_groups_are_refused(reward):
    function = reward(num_generations=2)
    with pytest.raises(DataError, match="rows 0 and 1 should answer one prompt"):
        call(function, [RIGHT, WRONG], ["Capital?", "Another?"], solution=["Paris", "Paris"])


def test_a_shape_sees_the_groups_that_trl_made(reward):
    config = {
        "components": {
            "answer": {"scorer": "qa_em"},
            "short": {"shape": "group_linear", "coefficient": 0.5},
        }
    }
    rows = [RIGHT, RIGHT + " and more", RIGHT, RIGHT + " and again more"]
    ids = [[0] * len(row) for row in rows]
    prompts = ["one", "one", "two", "two"]
    with zerowait.open(config) as rewards:
        expected = rewards.score(
            zerowait.Sample(p, r, "Paris", group=p, response_tokens=len(r))
            for p, r in zip(prompts, rows, strict=True)
        )
    values = call(reward(config), rows, prompts, completion_ids=ids, answer=["Paris"] * 4)
    assert values == [each.value for each in expected]


def test_it_is_pickled_without_its_open_rewards_and_without_its_key_in_clear(reward, judged):
    with FakeJudge() as judge:
        config = judged(judge)
        config["judges"]["q"]["endpoints"][0]["api_key"] = "planted-key"
        function = reward(config)
        assert call(function, ["response"])[0] is not None
        pickled = pickle.dumps(function)
        assert b"planted-key" not in pickled
        again = pickle.loads(pickled)
        try:
            assert again.__name__ == "zerowait"
            assert call(again, ["response"])[0] is not None
        finally:
            again.close()


def trained(
    tiny, tmp_path, function, steps=2, resumes=False, rollout_func=None, columns=None, **arguments
):
    """A trainer that has trained, and the batches of rewards and advantages that it logged."""
    columns = {"solution": "a"} if columns is None else columns
    rows = [{"prompt": f"capital of {name}?"} | columns for name in ("x", "y", "z", "w")]
    config = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=steps, per_device_train_batch_size=8,
        num_generations=4, max_completion_length=8, report_to=[], use_cpu=True, bf16=False,
        logging_steps=1, learning_rate=1e-3, seed=3, disable_tqdm=True,
        **{"save_strategy": "no"} | arguments,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        tiny,
        reward_funcs=function,
        args=config,
        train_dataset=datasets.Dataset.from_list(rows),
        rollout_func=rollout_func,
    )
    trainer.train(resume_from_checkpoint=resumes)
    return trainer


def test_trls_trainer_leaves_abstained_rows_out_of_baseline_and_update(
    tiny, tmp_path, reward, judged
):
    """Half of the judge's replies fail: the advantages are those of the judged rows alone."""
    fails = Status(status=500, share=0.5, always=True)
    log_to = [{"tensorboard": {"dir": str(tmp_path / "events")}}]
    with FakeJudge(Script(faults=(fails,))) as judge:
        function = reward(judged(judge, log_to=log_to))
        trainer = trained(tiny, tmp_path, function)
        function.close()
    told = [each["zerowait/abstained"] for each in trainer.state.log_history[:2]]
    assert logged(tmp_path / "events", "reward/abstained") == list(enumerate(map(approx, told)))
    assert [step for step, _ in logged(tmp_path / "events", "judge/p50_s")] == [0, 1]
    logs = trainer._logs
    values = [None if math.isnan(value) else value for value in logs["rewards"]["zerowait"]]
    advantages = list(logs["advantages"])
    assert len(values) == 8
    assert None in values
    for first in (0, 4):
        group, given = values[first : first + 4], advantages[first : first + 4]
        judged_values = [value for value in group if value is not None]
        for value, advantage in zip(group, given, strict=True):
            assert advantage == pytest.approx(expected_advantage(value, judged_values), abs=1e-4)
    assert {"quality"} <= set(logs["extra"])
    shown = list(logs["extra"]["quality"])
    for value, cell in zip(values, shown, strict=True):
        assert cell == ("abstained: http_error" if value is None else pytest.approx(value))
    metrics = trainer.state.log_history[0]
    assert 0 < metrics["zerowait/abstained"] < 1


def logged(folder, name):
    """The points of one of TensorBoard's curves."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(point.step, point.value) for point in events.Scalars(name)]


def approx(value):
    return pytest.approx(value, abs=1e-4)


def expected_advantage(value, judged_values):
    if value is None or len(judged_values) < 2:
        return 0.0
    mean = sum(judged_values) / len(judged_values)
    spread = (sum((v - mean) ** 2 for v in judged_values) / (len(judged_values) - 1)) ** 0.5
    return (value - mean) / (spread + 1e-4)


def test_trls_trainer_logs_no_metric_for_what_was_not_measured(tiny, tmp_path, reward):
    trainer = trained(tiny, tmp_path, reward(), steps=1)
    assert trainer.state.log_history[0]["reward"] == pytest.approx(0.0)
    assert trainer.state.log_history[0]["zerowait/abstained"] == 0.0


@pytest.mark.parametrize("columns", [{"solution": "a"}, {}], ids=["columns", "prompts-alone"])
def test_rows_are_judged_while_others_are_still_generated(
    tiny, tmp_path, reward, monkeypatch, columns, judged
):
    """The judge has answered the first rows of a batch before its last row has ended."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    waited = []
    with FakeJudge() as judge:
        function = reward(judged(judge))

        def generate(prompts, trainer):
            before = judge.seen.answered
            for row, prompt in enumerate(prompts):
                if row == len(prompts) - 1:
                    waited.append(until(lambda n=before + row: judge.seen.answered >= n))
                ids = trainer.processing_class(f"{prompt}{row}")["input_ids"]
                yield row, {"prompt_ids": [5], "completion_ids": ids, "logprobs": [0.0] * len(ids)}

        rollout = function.rollout(generate)
        trainer = trained(tiny, tmp_path, function, rollout_func=rollout, columns=columns)
        assert judge.seen.answered == 16
    assert waited == [True, True]
    assert not any(math.isnan(value) for value in trainer._logs["rewards"]["zerowait"])


def until(condition, within_s=60.0):
    end = time.monotonic() + within_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_record_gets_every_reward_and_judgement_with_its_step(reward, tmp_path, judged):
    with FakeJudge() as judge:
        function = reward(judged(judge), record=tmp_path / "run")
        call(function, [RIGHT, WRONG], trainer_state=SimpleNamespace(global_step=3))
        function.close()
    with closing(open_index(tmp_path / "run")) as index:
        found = index.execute(
            "SELECT step, response, judge FROM rewards JOIN judgement_rows USING (uid)"
            " JOIN judgements USING (judgement)"
        )
        assert {tuple(each) for each in found} == {(3, RIGHT, "q"), (3, WRONG, "q")}


def test_steps_that_are_trained_again_after_a_resume_count_once_in_the_record(
    tiny, tmp_path, reward, judged
):
    """TRL's checkpoint is of step 2, and the training that was broken off had reached step 3."""
    folder = tmp_path / "run"
    with FakeJudge() as judge:
        for steps, resumes in ((3, False), (4, True)):
            function = reward(judged(judge), record=folder)
            trained(tiny, tmp_path, function, steps, resumes, save_strategy="steps", save_steps=2)
            function.close()
            shutil.rmtree(tmp_path / "out" / "checkpoint-3", ignore_errors=True)
    steps = [row.sample.step for row in read_rewards(folder)]
    assert {step: steps.count(step) for step in steps} == dict.fromkeys(range(4), 8)


def test_a_training_that_resumes_nothing_goes_on_with_the_record(tmp_path, reward):
    for _ in range(2):
        function = reward(record=tmp_path)
        trainer = Trainer(function)
        call(function, [RIGHT], log_metric=trainer.log_metric, solution=["Paris"])
        function.close()
    assert len(list(read_rewards(tmp_path))) == 2


def test_a_record_beside_a_service_is_refused(reward):
    with pytest.raises(ConfigError, match="start it with zerowait serve --record DIR"):
        reward(url="http://127.0.0.1:1", record="run")
