"""The snippets of docs/how-to/trl.md run as printed, with the packages they need."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/trl.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: qa_em}}\n")
    return tmp_path


def run(snippet):
    names = {"__name__": "snippet"}
    exec(compile(f"import zerowait.trl\n{snippet}", PAGE.name, "exec"), names)
    return names


def test_the_training(folder, tiny):
    pytest.importorskip("trl")
    [snippet] = [each for each in SNIPPETS if "trainer.train()" in each]
    short = (
        "GRPOConfig(max_steps=1, use_cpu=True, bf16=False, report_to=[], max_completion_length=4, "
    )
    snippet = snippet.replace("Qwen/Qwen2.5-0.5B-Instruct", tiny).replace("GRPOConfig(", short)
    assert run(snippet)["trainer"].state.global_step == 1


def test_the_rollout(folder):
    pytest.importorskip("trl")
    [snippet] = [each for each in SNIPPETS if "def generate" in each]
    assert callable(run(snippet)["rollout_func"])


def test_the_task_of_verifiers(folder):
    pytest.importorskip("verifiers")
    [snippet] = [each for each in SNIPPETS if "vf.Task" in each]
    names = run(snippet)
    task = names["Trivia"](names["Question"](prompt="Capital?", answer="Paris"))
    assert [hook.__name__ for hook in task.hooks("reward")] == ["zerowait"]


OTHERS = PAGE.with_name("other-trainers.md")
PLUGINS = re.findall(r"^```python\n(.*?)^```", OTHERS.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("package", ["swift", "skyrl_gym"])
def test_the_plugins_of_other_trainers(folder, package):
    pytest.importorskip(package)
    [snippet] = [
        each for each in PLUGINS if re.search(rf"^(import|from) {package}\b", each, re.MULTILINE)
    ]
    run(snippet)
    if package == "swift":
        from swift.rewards import orms

        assert callable(orms.pop("zerowait")(args=None))
    else:
        from skyrl_gym.envs.registration import registry

        assert callable(registry.pop("zerowait").entry_point)
