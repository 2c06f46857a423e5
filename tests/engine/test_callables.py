"""Functions given as objects: ``zerowait.open({"components": {"x": {"scorer": function}}})``."""

import asyncio
import json
import os
import pickle
import threading
from functools import partial

import pytest

import zerowait
from zerowait import ConfigError, Sample
from zerowait.config import load_config

ROW = Sample("p", "Paris", "Paris")


def opened(function, **settings):
    return zerowait.open({"components": {"own": {"scorer": function, **settings}}})


def values(function, rows=(ROW,), **settings):
    with opened(function, **settings) as rewards:
        return [reward.value for reward in rewards.score(list(rows))]


class Judge:
    def __init__(self, worth):
        self.worth = worth

    def rate(self, sample):
        return self.worth

    def __call__(self, sample):
        return self.worth


def scaled(sample, *, factor=1.0):
    return factor * len(sample.response)


async def later(sample):
    await asyncio.sleep(0)
    return 3.0


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda sample: 2.0, 2.0),
        (lambda data_source, solution_str, ground_truth, extra_info: 1.5, 1.5),
        (lambda data_sources, solution_strs, ground_truths, extra_infos: [2.5], 2.5),
        (partial(scaled, factor=0.5), 2.5),
        (Judge(4.0).rate, 4.0),
        (Judge(5.0), 5.0),
        (later, 3.0),
        (partial(later), 3.0),
        (lambda sample: {"score": 1.0, "extra": 7}, 1.0),
    ],
)
def test_anything_that_can_be_called_is_a_scorer(function, value):
    assert values(function) == [value]


def test_options_go_to_the_function():
    assert values(lambda sample, factor=1.0: factor, factor=6.0) == [6.0]
    with pytest.raises(ConfigError, match="has no option 'faktor'; did you mean 'factor'"):
        values(lambda sample, factor=1.0: factor, faktor=6.0)


def test_a_function_that_can_be_imported_runs_in_a_process_of_its_own():
    config = load_config({"components": {"own": {"scorer": json.dumps}}})
    assert config.components["own"].scorer == "json:dumps"
    assert values(os.path.join) == [None]  # takes neither a sample nor columns: it abstains there


def test_other_functions_run_here_in_threads_and_one_that_hangs_costs_its_own_deadline():
    gate = threading.Event()

    def hangs(sample):
        if sample.response == "hang":
            gate.wait(60)
        return float(os.getpid())

    rows = [Sample("p", "hang")] * 3 + [Sample("p", "ok")] * 3
    with opened(hangs, timeout_s=0.3, workers=3) as rewards:
        scored = rewards.score(rows)
    gate.set()
    assert [reward.value for reward in scored[3:]] == [float(os.getpid())] * 3
    assert all("timeout" in reward.why and "hangs" in reward.why for reward in scored[:3])


def test_what_a_function_raises_is_its_samples_abstention():
    with opened(lambda sample: 1 / 0) as rewards:
        [reward] = rewards.score([ROW])
    assert reward.value is None
    assert "ZeroDivisionError" in reward.why


def test_the_same_function_has_the_same_name_and_another_process_is_told_to_import_it():
    function = lambda sample: 1.0  # noqa: E731
    configs = [load_config({"components": {"own": {"scorer": function}}}) for _ in range(2)]
    assert configs[0].components == configs[1].components
    assert pickle.loads(pickle.dumps(configs[0])).components == configs[0].components
    with pytest.raises(ConfigError, match=r"of another process.*move it into a module"):
        zerowait.open({"components": {"own": {"scorer": "local:<lambda>#999999"}}})


def test_a_module_beside_the_yaml_is_found(tmp_path):
    (tmp_path / "beside_the_yaml.py").write_text("def score(sample):\n    return 8.0\n")
    (tmp_path / "reward.yaml").write_text("components: {own: {scorer: 'beside_the_yaml:score'}}\n")
    with zerowait.open(tmp_path / "reward.yaml") as rewards:
        assert rewards.score([ROW])[0].value == 8.0
