"""Wrong keys and values of a training: found before anything starts, each in one line.

All of them are tried in one fresh process, which at its end has imported neither Ray nor torch nor
verl's own code.
"""

import json
import subprocess
import sys

import pytest

RECIPE = """\
name: test
model: {path: model}
data: {train: [train.jsonl], validation: [val.jsonl], batch: 2}
rollout: {n: 2}
algorithm: {steps: 1}
reward: {components: {answer: {scorer: contains}}}
verl:
  trainer.nnodes: 1
"""
ROW = {"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "a"}}
ACTOR = "actor_rollout_ref.actor"


def line(*overrides):
    return {"overrides": overrides}


def under_verl(text):
    return {"recipe": RECIPE + f"  {text}\n"}


def recipe(old, new):
    assert old in RECIPE
    return {"recipe": RECIPE.replace(old, new)}


def rows(name, *texts):
    return {"files": {name: "\n".join(json.dumps(t) if isinstance(t, dict) else t for t in texts)}}


CASES = [
    # a key that verl does not have: on the command line, in the recipe, nested, in a wrong section
    (line("trainer.nosuch=1"), "trainer.nosuch is no key of verl's configuration: there is no 'nosuch' in trainer; known: "),
    (line("trainer.save_frq=1"), "there is no 'save_frq' in trainer; did you mean 'save_freq'?"),
    (line("trianer.save_freq=1"), "there is no 'trianer' at the top; did you mean 'trainer'?"),
    (line("trainer.lr=1e-3"), "there is no 'lr' in trainer; there is actor_rollout_ref.actor.optim.lr and critic.optim.lr"),
    (line("algorithm.kl_ctrl={kl_cof:0.1}"), "algorithm.kl_ctrl.kl_cof is no key of verl's configuration: there is no 'kl_cof' in algorithm.kl_ctrl; did you mean 'kl_coef'?"),
    (under_verl("trainer.save_frq: 1"), "recipe.yaml:9: verl: trainer.save_frq is no key of verl's configuration: there is no 'save_frq' in trainer; did you mean 'save_freq'?"),
    (under_verl("trainer:\n    save_freq: 2\n    test_frq: 1"), "recipe.yaml:11: verl: trainer.test_frq is no key"),
    (line(f"+{ACTOR}.ppo_mini_bach_size=3"), "actor_rollout_ref.actor is made into a FSDPActorConfig, which has no 'ppo_mini_bach_size'; did you mean 'ppo_mini_batch_size'?"),
    (under_verl("+actor_rollout_ref.rollout.val_kwargs.top_b: 1"), "recipe.yaml:9: verl: actor_rollout_ref.rollout.val_kwargs.top_b is a key that verl cannot take: actor_rollout_ref.rollout.val_kwargs is made into a SamplingConfig, which has no 'top_b'; did you mean 'top_p'?"),
    (line("hydra.run.dri=x"), "hydra.run.dri does not fit (hydra.run.dri=x): "),
    # a value of another type
    (line("trainer.save_freq=abc"), "trainer.save_freq must be a whole number, not text 'abc'"),
    (line("trainer.total_epochs=1.5"), "trainer.total_epochs must be a whole number, not 1.5"),
    (line("trainer.save_freq=null"), "trainer.save_freq must be a whole number, not null"),
    (line("trainer.test_freq=true"), "trainer.test_freq must be a whole number, not true"),
    (line("trainer.max_actor_ckpt_to_keep=few"), "trainer.max_actor_ckpt_to_keep must be a whole number, not text 'few'"),
    (line("actor_rollout_ref.rollout.n=2.5"), "actor_rollout_ref.rollout.n must be a whole number, not 2.5"),
    (line(f"{ACTOR}.optim.lr=fast"), "actor_rollout_ref.actor.optim.lr must be a number, not text 'fast'"),
    (under_verl(f"{ACTOR}.optim.weight_decay: 1e-3"), "recipe.yaml:9: verl: actor_rollout_ref.actor.optim.weight_decay must be a number, not text '1e-3': YAML reads 1e-3 as text; write 0.001"),
    (line(f"{ACTOR}.use_kl_loss=no"), "actor_rollout_ref.actor.use_kl_loss must be true or false, not text 'no'"),
    (line("data.shuffle=maybe"), "data.shuffle must be true or false, not text 'maybe'"),
    (under_verl("data.shuffle: [true]"), "recipe.yaml:9: verl: data.shuffle must be true or false, not a list"),
    (line("trainer.experiment_name=7"), "trainer.experiment_name must be text, not 7, which is a number"),
    (line("trainer=5"), "trainer is a section with keys of its own, not 5"),
    (line("trainer.save_freq={a:1}"), "trainer.save_freq must be a whole number, not a mapping"),
    (line("trainer.save_freq=${trainer.tset_freq}"), "trainer.save_freq refers to what is not there: Interpolation key 'trainer.tset_freq' not found"),
    (line("trainer.nnodes=0"), "trainer.nnodes must be at least 1, not 0"),
    (under_verl("trainer.total_epochs: -1"), "recipe.yaml:9: verl: trainer.total_epochs must be at least 1, not -1"),
    # a name that verl does not know
    (line("trainer.v1.trainer_mode=zerowiat"), "trainer.v1.trainer_mode must be one of verl's names, not 'zerowiat'; did you mean 'zerowait'?"),
    (recipe("rollout:", "trainer: {mode: zerowiat}\nrollout:"), "or zerowait_separate_async, not 'zerowiat'; did you mean 'zerowait'?"),
    (line("model_engine=megatorn"), "model_engine has no choice 'megatorn' in verl; did you mean 'megatron'?"),
    (line("optim@actor_rollout_ref.actor.optim=fdsp"), "has no choice 'fdsp' in verl; did you mean 'fsdp'?"),
    (line("trainer.resume_mode=atuo"), "trainer.resume_mode must be one of verl's names, not 'atuo'; did you mean 'auto'?"),
    (line("trainer.logger=[consol]"), "trainer.logger must list verl's, not 'consol'; did you mean 'console'?"),
    (line(f"{ACTOR}.loss_agg_mode=token_mean"), "did you mean 'token-mean'?"),
    (line(f"{ACTOR}.optim.lr_scheduler_type=cosin"), "did you mean 'cosine'?"),
    (line(f"{ACTOR}.policy_loss.loss_mode=vanila"), "did you mean 'vanilla'?"),
    (under_verl("algorithm.adv_estimator: gpro"), "recipe.yaml:9: verl: algorithm.adv_estimator must be one of verl's names, not 'gpro'; did you mean 'grpo'?"),
    # a critic that no part of the recipe has set up
    (line("algorithm.adv_estimator=gae"), "algorithm.adv_estimator is gae, so there is a critic, and it would start from verl's ~/models/deepseek-llm-7b-chat: write algorithm: {estimator: gae} in the recipe, or critic.model.path=FOLDER too"),
    (under_verl("algorithm.adv_estimator: gae"), "recipe.yaml:9: verl: algorithm.adv_estimator is gae, so there is a critic"),
    (line("critic.enable=true"), "critic.enable is true, so there is a critic"),
    # what Hydra cannot read
    (line("trainer.save_freq=[1"), "trainer.save_freq is not in Hydra's syntax (trainer.save_freq=[1): "),
    (line("trainer.save_freq=1,2"), "trainer.save_freq has several values (trainer.save_freq=1,2), and a training has one"),
    (line("trainer.save_freq"), "'trainer.save_freq': an override of verl's configuration is key=value"),
    (line("trainer..save_freq=1"), "trainer..save_freq"),
    (line("--ouput=runs"), "--ouput=runs: zerowait train has no such option; did you mean '--output'?"),
    # the recipe's own keys, and the files
    (recipe("rollout: {n: 2}", "rolout: {n: 2}"), "recipe.yaml:4: it has no key 'rolout'; did you mean 'rollout'?"),
    (recipe("steps: 1", "steps: many"), "recipe.yaml:5: algorithm.steps must be a whole number, not text"),
    (line("data.prompt_key=promt"), "train.jsonl, row 1: has no column 'promt'; did you mean 'prompt'?"),
    (rows("train.jsonl", ROW, {"prompt": ROW["prompt"]}), "train.jsonl, row 2: column 'reward_model' has no 'ground_truth'"),
    (rows("val.jsonl", {"prompt": "q", "reward_model": {"ground_truth": 1}}), "val.jsonl, row 1: column 'prompt' has to be a list of chat messages"),
    (rows("train.jsonl", ROW, "{"), "train.jsonl, line 2: is not JSON"),
    (rows("x.parquet", "PAR1 nothing") | line("data.val_files=[x.parquet]"), "x.parquet: is not a Parquet file"),
    (line("data.train_files=[no.jsonl]"), "no.jsonl: there is no such file"),
    (line("data.train_batch_size=two"), "data.train_batch_size must be a whole number, not text 'two'"),
]  # fmt: skip

TRIED = """\
import contextlib, io, json, os, pathlib, sys
from zerowait.cli import app

def ended(folder, overrides):
    os.chdir(folder)
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
        try:
            app.run(["train", "recipe.yaml", *overrides])
        except SystemExit as end:
            return end.code, output.getvalue()

tried = [ended(*case) for case in json.load(sys.stdin)]
heavy = sorted({"ray", "torch", "transformers", "verl"} & set(sys.modules))
print(json.dumps({"tried": tried, "heavy": heavy}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """How each of the cases ended, and what was imported meanwhile."""
    root = tmp_path_factory.mktemp("refused")
    # it is found as the installed one would be, and its importer is recognised at once
    (root / "ray").mkdir()
    (root / "ray" / "__init__.py").write_text("raise SystemExit('ray was imported')\n")
    cases = []
    for number, (given, _) in enumerate(CASES):
        folder = root / str(number)
        (folder / "model").mkdir(parents=True)
        for name in ("config.json", "tokenizer.json"):
            (folder / "model" / name).write_text("{}")
        for name in ("train", "val"):
            (folder / f"{name}.jsonl").write_text((json.dumps(ROW) + "\n") * 2)
        (folder / "recipe.yaml").write_text(given.get("recipe", RECIPE))
        for name, text in given.get("files", {}).items():
            (folder / name).write_text(text)
        cases.append((str(folder), given.get("overrides", [])))
    start = f"import sys; sys.path.insert(0, {str(root)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", start + TRIED],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.timeout(240)
def test_nothing_heavy_was_imported_for_any_of_them(answers):
    assert answers["heavy"] == []
    assert len(answers["tried"]) == len(CASES) >= 25


@pytest.mark.parametrize(("number", "says"), [(n, says) for n, (_, says) in enumerate(CASES)])
def test_a_wrong_key_or_value_is_one_line_and_exit_code_2(answers, number, says):
    code, output = answers["tried"][number]
    assert says in output
    assert len(output.strip().splitlines()) == 1
    assert code == 2
