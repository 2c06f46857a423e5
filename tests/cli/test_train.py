"""What ``zerowait train`` says before any model is loaded."""

import json

import pytest

from zerowait.cli.preflight import check_recipe
from zerowait.cli.train import _outcome, begin_record, check_configuration
from zerowait.errors import ConfigError
from zerowait.testing import FakeJudge
from zerowait.verl.launch.command import compose_arguments, setup_of, uses_fused_kernels
from zerowait.verl.launch.recipe import load_recipe
from zerowait.verl.launch.steps import steps_of
from zerowait.verl.launch.trainer_process import _steps

RECIPE = """\
name: test
model: {path: model}
data: {train: [train.jsonl], validation: [val.jsonl], batch: 2}
rollout: {n: 2}
algorithm: {steps: 1}
reward: reward.yaml
resources: {device: cpu}
"""
REWARD = """\
components:
  answer: {scorer: contains}
  quality: {judge: q, weight: 0.1}
judges:
  q:
    endpoints: [{base_url: "URL", model: m}]
    verdict: {integer: [1, 10]}
on_failure: neutral
"""
ROW = {"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "a"}}


@pytest.fixture(scope="module")
def judge():
    with FakeJudge() as running:
        yield running


@pytest.fixture
def project(tmp_path, judge):
    (tmp_path / "model").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "model" / name).write_text("{}")
    for name in ("train", "val"):
        (tmp_path / f"{name}.jsonl").write_text((json.dumps(ROW) + "\n") * 2)
    (tmp_path / "reward.yaml").write_text(REWARD.replace("URL", judge.url))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("recipe.yaml", "rollout: {n: 2}", "rolout: {n: 2}", "recipe.yaml:4: it has no key 'rolout'; did you mean 'rollout'?"),
        ("recipe.yaml", "{n: 2}", "{nn: 2}", "recipe.yaml:4: rollout has no key 'nn'; did you mean 'n'?"),
        ("recipe.yaml", "steps: 1", "steps: many", "recipe.yaml:5: algorithm.steps must be a whole number, not text"),
        ("recipe.yaml", "algorithm: {steps: 1}\n", "", "recipe.yaml:1: algorithm is missing"),
        ("recipe.yaml", "reward.yaml", "rewards.yaml", "rewards.yaml: cannot be read: No such file or directory; did you mean '"),
        ("recipe.yaml", "path: model", "path: ./modle", "recipe.yaml:2: model.path ./modle: there is no folder"),
        ("recipe.yaml", "[train.jsonl]", "[nowhere.parquet]", "nowhere.parquet: there is no such file"),
        ("reward.yaml", "model: m", "model: m, api_key_env: NOT_SET_ANYWHERE", "names the environment variable NOT_SET_ANYWHERE, which is not set"),
        ("reward.yaml", "wei", "wie", "reward.yaml:3: components.quality has no key 'wieght'; did you mean 'weight'?"),
        ("reward.yaml", "on_failure: neutral\n", "", "on_failure does not say what out_of_range, refused, too_long, truncated, unparseable of 'quality' are worth"),
        ("reward.yaml", "on_failure: neutral", "on_failure: mask", "reward.yaml:8: on_failure.default is 'mask', which verl's own trainers cannot do"),
        ("recipe.yaml", "{device: cpu}", "{device: cpu}\ntrainer: {mode: zerowait, redeem: 5}", "recipe.yaml:8: trainer has no key 'redeem'; did you mean 'redeem_s'?"),
        ("recipe.yaml", "{device: cpu}", "{device: cpu}\ntrainer: {mode: zerowait, max_abstained: 0}", "max_abstained must be in (0, 1], not 0"),
        ("recipe.yaml", "{device: cpu}", "{device: cpu}\ntrainer: {max_abstained: 0.3}", "max_abstained is read in zerowait and"),
        ("recipe.yaml", "{device: cpu}", "{device: cpu}\ntrainer: {mode: sync, redeem_s: 5}", "can they be stopped from here"),
        ("train.jsonl", "ground_truth", "groundtruth", "train.jsonl, row 1"),
        ("recipe.yaml", "name: test", "name: ../../x", "recipe.yaml:1: name is '../../x', and has to be the name of one folder"),
        ("recipe.yaml", "reward: reward.yaml", "reward: reward.yaml\nverl: {actor_rollout_ref.rollout.top_p: .nan}", "actor_rollout_ref.rollout.top_p must be a number, not nan"),
        ("recipe.yaml", "device: cpu", "device: cpu, devices: 0", "recipe.yaml:7: resources.devices must be at least 1, not 0"),
        ("recipe.yaml", "{n: 2}", "{engine: vllm}", "recipe.yaml:4: rollout.engine is vllm, which needs a GPU, and this runs on the CPU"),
        ("recipe.yaml", "{n: 2}", "{n: 2}\nverl: {algorithm.filter_groups: {enable: true, metric: acc}}", "algorithm.filter_groups.metric=acc is no number that this reward has: write reward, or one of its components: "),
        ("recipe.yaml", "batch: 2", "batch: 3", "recipe.yaml:3: data.batch is 3, and the training files have 2 rows"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line_and_exit_code_2(project, zerowait, file, old, new, says):
    change(project / file, old, new)
    done = zerowait("train", "recipe.yaml")
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("mode", ["zerowait", "zerowait_colocate_async", "zerowait_separate_async"])
def test_the_trainer_modes_zerowait_can_carry_out_a_mask(project, mode):
    change(project / "reward.yaml", "on_failure: neutral", "on_failure: mask")
    change(project / "recipe.yaml", "{device: cpu}", f"{{device: cpu}}\ntrainer: {{mode: {mode}}}")
    recipe = load_recipe(project / "recipe.yaml")
    check_recipe(recipe, {}, connect=True)
    command = compose_arguments(recipe, setup_of(recipe, "cpu"), {})
    assert f"trainer.v1.trainer_mode={mode}" in command
    assert "+reward.zerowait.max_abstained=0.5" in command


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_verls_own_trainers_cannot_carry_out_a_mask(project, mode):
    change(project / "reward.yaml", "on_failure: neutral", "on_failure: mask")
    change(project / "recipe.yaml", "{device: cpu}", f"{{device: cpu}}\ntrainer: {{mode: {mode}}}")
    with pytest.raises(ConfigError, match="'mask', which verl's own trainers cannot do"):
        check_recipe(load_recipe(project / "recipe.yaml"), {}, connect=True)


def test_a_ray_address_that_is_not_used_is_told(project, zerowait, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    done = zerowait("train", "recipe.yaml", "--dry-run")
    assert "RAY_ADDRESS is set and not used" in done.stderr
    change(project / "recipe.yaml", "{device: cpu}", "{device: cpu, ray_address: auto}")
    done = zerowait("train", "recipe.yaml", "--dry-run")
    assert "RAY_ADDRESS" not in done.stderr


def test_an_unreachable_endpoint_is_one_clear_line(project, judge, zerowait):
    change(project / "reward.yaml", judge.url, "http://127.0.0.1:9/v1")
    done = zerowait("train", "recipe.yaml")
    assert done.returncode == 2
    assert "base_url http://127.0.0.1:9/v1 cannot be reached: Connection refused" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_override_that_verl_would_ignore_is_refused_with_its_translation(project, zerowait):
    done = zerowait("train", "recipe.yaml", "reward_model.reward_manager=batch")
    assert done.returncode == 2
    assert "write reward.reward_manager.name=zerowait" in done.stderr


def test_an_override_that_would_bypass_the_rewards_is_refused(project, zerowait):
    done = zerowait("train", "recipe.yaml", "reward.reward_model.enable=True")
    assert done.returncode == 2
    assert "never asks the reward manager" in done.stderr


@pytest.mark.parametrize(
    ("overrides", "recipe", "says"),
    [
        (["trainer.total_epochs=1"], "steps: 4", "total_epochs=1 ends the training after 2 steps"),
        (["trainer.total_epochs=1"], "steps: 3", "algorithm.steps is 3"),
        (["trainer.total_epochs=3", "data.train_max_samples=2"], "steps: 4", "after 3 steps"),
        (["trainer.total_epochs=2", "data.train_batch_size=3"], "steps: 4", "after 2 steps"),
        (
            ["trainer.total_epochs=2", "trainer.total_training_steps=5"],
            "steps: 4",
            "trainer.total_training_steps is 5",
        ),
        ([], "steps: 4}\nverl: {trainer.total_epochs: 1", "total_epochs=1 ends"),
        ([], "steps: 4}\nverl: {trainer: {total_epochs: 1}", "total_epochs=1 ends"),
        ([], "steps: 4}\nverl: {trainer.total_training_steps: 2", "algorithm.steps is 4"),
    ],
)
def test_limits_of_the_steps_that_contradict_each_other_are_an_error(
    project, zerowait, overrides, recipe, says
):
    (project / "train.jsonl").write_text((json.dumps(ROW) + "\n") * 4)
    change(project / "recipe.yaml", "steps: 1", recipe)
    done = zerowait("train", "recipe.yaml", *overrides)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("overrides", "steps", "epochs"),
    [
        ({}, 4, 4),
        ({"trainer.total_epochs": "2"}, 4, 2),  # of two steps each
        ({"trainer.total_training_steps": "7"}, 7, 7),
        ({"trainer.total_training_steps": "null", "trainer.total_epochs": "3"}, 6, 3),
    ],
)
def test_the_steps_that_are_asked_for_are_those_that_verl_will_make(
    project, overrides, steps, epochs
):
    (project / "train.jsonl").write_text((json.dumps(ROW) + "\n") * 4)
    change(project / "recipe.yaml", "steps: 1", "steps: 4")
    recipe = load_recipe(project / "recipe.yaml")
    check_recipe(recipe, overrides, connect=False)
    assert steps_of(recipe, overrides, rows=4) == steps
    command = compose_arguments(recipe, setup_of(recipe, "cpu"), overrides)
    assert f"trainer.total_epochs={epochs}" in command


SHAPED = "components:\n  answer: {scorer: contains}\n  length: {shape: median_band}\n"


@pytest.mark.parametrize(
    ("batch", "trainer", "workers"),
    [(256, "{mode: colocate_async}", 6), (256, "{mode: zerowait}", 1)],
)
def test_large_batches_with_a_shape_get_the_reward_workers_that_hold_them(
    project, batch, trainer, workers
):
    (project / "reward.yaml").write_text(SHAPED)
    change(project / "recipe.yaml", "batch: 2}", f"batch: {batch}}}\ntrainer: {trainer}")
    change(project / "recipe.yaml", "{n: 2}", "{n: 8}")
    assert check_configuration(load_recipe(project / "recipe.yaml"), {}) == workers


@pytest.mark.parametrize("where", ["resources", "override"])
def test_too_few_reward_workers_are_refused_before_anything_is_started(project, zerowait, where):
    """A reward worker that dies would end no training: verl draws other prompts."""
    (project / "reward.yaml").write_text(SHAPED)
    change(project / "recipe.yaml", "batch: 2}", "batch: 64}\ntrainer: {mode: colocate_async}")
    change(project / "recipe.yaml", "{n: 2}", "{n: 8}")
    if where == "resources":
        change(project / "recipe.yaml", "{device: cpu}", "{device: cpu, reward_workers: 1}")
    overrides = ["reward.num_workers=1"] if where == "override" else []
    done = zerowait("train", "recipe.yaml", *overrides)
    assert done.returncode == 2, done.stderr
    assert "1024 rows may wait for their siblings, and 1 reward workers hold 1000" in done.stderr
    assert "set reward.num_workers=2" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("rollout", "mode", "sequences"),
    [
        ("{n: 2}", "sync", 256),
        ("{n: 64}", "sync", 512),
        ("{n: 64}", "zerowait_colocate_async", 1024),
        ("{n: 1000}", "sync", 1024),
        ("{n: 64, max_num_seqs: 300}", "sync", 300),
    ],
)
def test_an_engine_generates_all_responses_of_a_batch_at_once(project, rollout, mode, sequences):
    change(project / "recipe.yaml", "batch: 2}", f"batch: 8}}\ntrainer: {{mode: {mode}}}")
    change(project / "recipe.yaml", "{n: 2}", rollout)
    recipe = load_recipe(project / "recipe.yaml")
    command = compose_arguments(recipe, setup_of(recipe, "cuda"), {})
    assert f"actor_rollout_ref.rollout.max_num_seqs={sequences}" in command


_SQUARES = "actor_rollout_ref.actor.calculate_sum_pi_squared"
_FUSED = "actor_rollout_ref.model.use_fused_kernels"


@pytest.mark.parametrize(
    ("parts", "config", "device", "fused"),
    [
        ({}, '{"model_type": "qwen3"}', "cuda", (True, "")),
        ({}, '{"model_type": "qwen3"}', "cpu", (False, "")),
        ({"{path: model}": "{path: model, flash_attention: true}"}, "{}", "cuda", (False, "")),
        ({}, '{"model_type": "gemma2"}', "cuda", (False, "of the type gemma2 they were not")),
        ({}, "not JSON", "cuda", (False, "config.json of model could not be read")),
        ({"name: test": f"verl: {{{_SQUARES}: true}}"}, "{}", "cuda", (False, "distribution")),
        ({"name: test": f"verl: {{{_FUSED}: true}}"}, "{}", "cuda", (False, "")),
    ],
)
def test_log_probabilities_are_fused_where_that_is_exact_and_flash_attn_is_not_used(
    project, parts, config, device, fused
):
    (project / "model" / "config.json").write_text(config)
    for old, new in parts.items():
        change(project / "recipe.yaml", old, new)
    use, why = uses_fused_kernels(load_recipe(project / "recipe.yaml"), device, {})
    assert use is fused[0]
    assert fused[1] in why
    assert bool(fused[1]) == bool(why)


@pytest.mark.parametrize(
    ("done", "before", "says"),
    [
        (4, 0, "4 steps"),
        (2, 0, "ended after step 2, and 4 were asked for"),
        (0, 0, "reports no step"),
        (2, 2, "reports no step"),
        (4, 2, "4 steps"),
        (4, 4, "no step left of 4, since the checkpoint is of step 4"),
    ],
)
def test_the_last_step_that_was_trained_is_reported(done, before, says):
    assert says in _outcome(done, 4, before=before)


def test_what_zerowait_says_in_the_trainers_processes_reaches_the_terminal():
    output, written = [], []
    lines = [
        "(TaskRunnerV1 pid=7) WARNING:zerowait: a whole batch was sampled in vain\n",
        "step:1 - reward/mean:0.5\n",
        "File zerowait/verl/trainer/ticket_trainer.py\n",
    ]
    assert list(_steps(lines, written.append, output.append)) == [1]
    assert output == ["a whole batch was sampled in vain"]
    assert written == lines


@pytest.mark.parametrize("verdict", ["{pairs: group}", "{rank: group}"])
@pytest.mark.parametrize("overridden", [False, True])
def test_a_comparison_of_siblings_is_refused_where_there_are_none(
    project, zerowait, verdict, overridden
):
    change(project / "reward.yaml", "{integer: [1, 10]}", verdict)
    overrides = ["actor_rollout_ref.rollout.n=1"] if overridden else []
    if not overridden:
        change(project / "recipe.yaml", "{n: 2}", "{n: 1}")
    done = zerowait("train", "recipe.yaml", *overrides)
    assert done.returncode == 2, done.stderr
    assert "reward.yaml:3: components.quality compares the responses to one prompt" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_training_that_verl_resumes_goes_on_with_its_record(project, capsys):
    recipe = load_recipe(project / "recipe.yaml", output=project / "run")
    command = compose_arguments(recipe, setup_of(recipe, "cpu"), {})
    record = project / "run" / "rewards.jsonl"
    record.parent.mkdir()
    record.write_text("early\n")
    (record.parent / "global_step_4").mkdir()
    (record.parent / "latest_checkpointed_iteration.txt").write_text("4")
    begin_record(record.parent, command)
    assert record.read_text() == "early\n"
    assert "resumes after step 4" in capsys.readouterr().out
    begin_record(record.parent, [*command, "trainer.resume_mode=disable"])
    assert not record.exists()
    assert record.with_name("rewards.previous.jsonl").read_text() == "early\n"


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_dry_run_prints_the_composed_configuration_with_every_override(project, zerowait_process):
    done = zerowait_process(
        "train", "recipe.yaml", "--dry-run", "trainer.total_training_steps=7", "+reward.mine=1"
    )
    assert done.returncode == 0, done.stderr
    assert "total_training_steps: 7" in done.stdout
    assert "mine: 1" in done.stdout
    assert "name: zerowait" in done.stdout


def test_a_setting_that_keeps_verl_from_loading_us_is_named(project, zerowait_process):
    done = zerowait_process("train", "recipe.yaml", env={"VERL_USE_EXTERNAL_PLUGINS": "none"})
    assert done.returncode == 2
    assert "VERL_USE_EXTERNAL_PLUGINS=none keeps verl from loading zerowait" in done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "overrides", "says"),
    [
        ("recipe.yaml", "batch: 2", "batch: 2", ["data.train_batch_size=640"], "data.train_batch_size is 640, and the training files have 2 rows"),
        ("recipe.yaml", "batch: 2", "batch: 3", [], "recipe.yaml:3: data.batch is 3, and the training files have 2 rows"),
        ("recipe.yaml", "batch: 2", "batch: 2", ["data.train_files=[no.jsonl]"], "no.jsonl: there is no such file"),
        ("recipe.yaml", "steps: 1", "steps: 0", [], "recipe.yaml:5: algorithm.steps must be at least 1, not 0"),
        ("reward.yaml", "on_failure: neutral", "on_failure: mask", [], "on_failure.default is 'mask', which verl's own trainers cannot do"),
        ("recipe.yaml", "batch: 2", "batch: 2", ["reward.reward_manager.name=naive"], "keeps reward.yaml from being read"),
    ],
)  # fmt: skip
def test_a_dry_run_finds_what_needs_no_network(
    project, judge, zerowait, file, old, new, overrides, says
):
    change(project / file, old, new)
    change(project / "reward.yaml", judge.url, "http://127.0.0.1:9/v1")
    done = zerowait("train", "recipe.yaml", "--dry-run", *overrides)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
