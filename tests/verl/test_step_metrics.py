"""What verl's loggers and dumps show: what was judged, never a placeholder."""

import json
import math
import pickle

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis.strategies import floats, lists, none, one_of
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from zerowait.config import load_config
from zerowait.engine import Stats
from zerowait.engine.monitor.metrics import (
    coverage,
    has_all_prices,
    judge_metrics,
    reward_metrics,
)
from zerowait.types import Abstain, Reward, Score, Skipped
from zerowait.verl.rewards.reward_info import RowInfo, extra_info
from zerowait.verl.rewards.row_treatment import RowTreatment, SettledSession
from zerowait.verl.trainer.ticket_trainer import ZerowaitTrainer

BOTH = "{a: {input: 1, output: 2}, b: {input: 0, output: 0}}"
PRICED = """
components: {answer: {scorer: qa_em}, quality: {judge: q}}
judges:
  q:
    endpoints: [{base_url: "http://h/v1", model: a}, {base_url: "http://h/v1", model: b}]
    verdict: {integer: [1, 10]}
prices: """
LOST = Reward(
    None, {"rule": Score(1.0), "judge": Abstain("timeout")}, {}, "neutral", "judge: timeout: late"
)


def judged(rule, judge):
    outcome = Skipped("gate") if judge is None else Score(judge)
    return Reward(rule + (judge or 0.0), {"rule": Score(rule), "judge": outcome})


def test_means_are_over_what_was_judged():
    metrics = reward_metrics([judged(1.0, 3.0), judged(0.0, 1.0), LOST, judged(1.0, None)])
    assert metrics == {
        "reward/mean": pytest.approx(2.0),
        "reward/std": pytest.approx(math.sqrt(14 / 3 - 4 + 4 / 3)),
        "reward/abstained": 0.25,
        "reward/rule/mean": 0.75,
        "reward/rule/std": pytest.approx(math.sqrt(3) / 4),
        "reward/rule/abstained": 0.0,
        "reward/judge/mean": 2.0,
        "reward/judge/std": 1.0,
        "reward/judge/abstained": pytest.approx(1 / 3),
    }


def test_what_rewards_measured_is_averaged_over_those_that_measured_it():
    def measuring(penalty, agreement):
        metrics = {
            "length/scored": 1.0,
            "length/abstained": 0.0,
            "length_penalty": penalty,
            "length/agreement": agreement,
        }
        return Reward(1.0, {"length": Score(1.0)}, metrics)

    metrics = reward_metrics([measuring(0.5, None), measuring(None, None), measuring(1.5, None)])
    assert metrics["reward/length_penalty/mean"] == 1.0
    assert metrics.keys() == {
        *(f"reward/{name}" for name in ("mean", "std", "abstained")),
        *(f"reward/length/{name}" for name in ("mean", "std", "abstained")),
        "reward/length_penalty/mean",
        "reward/length/agreement/mean",
    }
    assert math.isnan(metrics["reward/length/agreement/mean"])


def test_verls_rows_show_what_a_reward_measured_under_the_same_keys():
    known = Reward(1.5, {"rule": Score(1.5)}, {"rule/abstained": 0.0, "original_score": 1.5})
    lost = Reward(
        None, {"rule": Abstain("timeout")}, {"rule/abstained": 1.0, "original_score": None}
    )
    assert extra_info(known).keys() == extra_info(lost).keys()
    assert extra_info(known)["original_score"] == extra_info(known)["judged_reward"] == 1.5
    assert extra_info(lost)["original_score"] is None
    numbers = [v for info in map(extra_info, (known, lost)) for v in info.values()]
    assert all(v is None or isinstance(v, str) or math.isfinite(v) for v in numbers)


def test_a_step_in_which_nothing_was_judged_has_no_mean_and_says_so_under_the_same_keys():
    """A line that only ends, or a 0.0 that no judge gave, would tell something else."""
    metrics = reward_metrics([LOST, LOST])
    assert metrics["reward/abstained"] == metrics["reward/judge/abstained"] == 1.0
    assert metrics.keys() == reward_metrics([judged(1.0, 2.0)]).keys()
    unknown = {key for key, value in metrics.items() if math.isnan(value)}
    assert unknown == {
        *("reward/mean", "reward/std"),
        *("reward/judge/mean", "reward/judge/std"),
    }


def test_a_component_that_nobody_wanted_has_neither_a_mean_nor_a_rate():
    metrics = reward_metrics([judged(1.0, None), judged(0.0, None)])
    assert {key for key, value in metrics.items() if math.isnan(value)} == {
        f"reward/judge/{name}" for name in ("mean", "std", "abstained")
    }


@given(lists(one_of(none(), floats(-5, 5)), min_size=1))
def test_a_mean_lies_within_what_was_judged_and_the_rate_counts_the_rest(values):
    rewards = [LOST if value is None else Reward(value, {"rule": Score(value)}) for value in values]
    metrics = reward_metrics(rewards)
    there = [value for value in values if value is not None]
    assert metrics["reward/abstained"] == pytest.approx(values.count(None) / len(values))
    if there:
        assert min(there) - 1e-9 <= metrics["reward/mean"] <= max(there) + 1e-9
    unknown = {key for key, value in metrics.items() if math.isnan(value)}
    assert ("reward/mean" in unknown) == (not there)


def test_judges_are_counted_by_step_and_timed_as_they_are_now():
    before = Stats(asked=10, cached=5, joined=1, retries=2, spent_usd=1.0, latency_p50_s=9.0)
    after = Stats(
        asked=16, cached=9, joined=3, retries=3, spent_usd=1.5, latency_p50_s=0.5, limit=64
    )
    metrics = judge_metrics(before, after, priced=True)
    assert metrics["judge/asked"] == 6
    assert metrics["judge/repeats_saved"] == 6
    assert metrics["judge/hit_rate"] == 0.5
    assert metrics["judge/retries"] == 1
    assert metrics["judge/spent_usd"] == pytest.approx(0.5)
    assert (metrics["judge/p50_s"], metrics["judge/limit"]) == (0.5, 64)


def test_before_anybody_was_asked_a_judges_numbers_are_unknown_and_its_counts_are_nought():
    metrics = judge_metrics(Stats(), Stats(), priced=True)
    unknown = {key for key, value in metrics.items() if math.isnan(value)}
    assert unknown == {f"judge/{n}" for n in ("p50_s", "p95_s", "p99_s", "limit", "hit_rate")}
    assert {metrics[key] for key in metrics.keys() - unknown} == {0.0}


def test_a_hub_that_began_to_count_anew_took_nothing_back():
    """A killed hub forgets its counts; the step's are unknown, and the keys stay."""
    before = Stats(asked=10, cached=5, spent_usd=1.0, limit=8)
    after = Stats(asked=2, cached=7, limit=8, latency_p50_s=0.5)
    metrics = judge_metrics(before, after, priced=True)
    assert metrics.keys() == judge_metrics(Stats(), after, priced=True).keys()
    known = {key for key, value in metrics.items() if not math.isnan(value)}
    assert known == {"judge/p50_s", "judge/limit", "judge/loop_lag_p99_s"}


def test_what_models_without_a_price_cost_is_unknown_and_not_nought():
    metrics = judge_metrics(Stats(), Stats(asked=3, limit=4), priced=False)
    assert math.isnan(metrics["judge/spent_usd"])


@pytest.mark.parametrize(("prices", "known"), [("{a: {input: 1, output: 2}}", False), (BOTH, True)])
def test_the_cost_is_known_when_every_model_has_a_price(prices, known):
    assert has_all_prices(load_config(yaml.safe_load(PRICED + prices))) is known


def test_a_validation_says_how_much_of_it_was_judged():
    metrics = coverage(["a", "a", "a", "b"], [1.0, None, 0.0, None])
    assert metrics["val-core/a/reward/mean"] == 0.5
    assert metrics["val-core/a/reward/coverage"] == pytest.approx(2 / 3)
    assert metrics["val-core/b/reward/coverage"] == 0.0
    assert math.isnan(metrics["val-core/b/reward/mean"])
    assert metrics["val-aux/a/reward/rows"] == 3
    assert coverage([""], [1.0])["val-core/unknown/reward/mean"] == 1.0  # as verl calls it


class Rows:
    """Rewards by verl's keys."""

    def __init__(self, rewards):
        self.rewards = rewards

    def reward(self, key):
        return self.rewards.get(key)


def bare(rewards):
    trainer = object.__new__(ZerowaitTrainer)
    trainer._rows = Rows(rewards)
    return trainer


def test_a_dump_has_null_and_the_reason_where_there_is_no_reward(tmp_path):
    trainer = bare({"a_0_0": judged(1.0, 2.0), "a_1_0": LOST})
    trainer.global_steps = 3
    trainer._init_dump_executor()
    trainer._dump_generations(
        inputs=["q"] * 3,
        outputs=["x", "y", "z"],
        gts=["t"] * 3,
        scores=[3.0, 0.0, 0.5],
        reward_extra_infos_dict={"uid": ["a_0_0", "a_1_0", "b_0_0"], "reward": [3.0, 0.0, 0.5]},
        dump_path=str(tmp_path),
    )
    trainer._shutdown_dump_executor()
    first, lost, own = map(json.loads, (tmp_path / "3.jsonl").read_text().splitlines())
    assert (first["score"], first["judge"]) == (3.0, 2.0)
    assert (lost["score"], lost["reward"], lost["judge"]) == (None, None, None)
    assert lost["abstained_why"] == "judge: timeout: late"
    assert own["score"] == 0.5


def test_an_abstained_validation_row_is_neither_a_reward_nor_a_wrong_answer_of_nought():
    """Neither 0.0 in the mean, nor counted by verl among accuracies that are missing."""
    trainer = bare({})
    infos = {
        "reward": [1.0, 0.0, 0.0],
        "abstained": [0.0, 1.0, 0.0],
        "abstained_why": ["", "judge: timeout", ""],
        "judged_reward": [1.0, None, 0.0],
        "acc": [1.0, None, 1.0],
    }
    metrics = trainer._val_metrics_update(
        ["s"] * 3,
        ["u", "u", "v"],
        infos,
        [2, 2, 2],
        expected_acc_counts={("s", "u"): 2, ("s", "v"): 1},
    )
    assert metrics["val-core/s/reward/mean"] == 0.5
    assert metrics["val-core/s/reward/coverage"] == pytest.approx(2 / 3)
    assert metrics["val-aux/s/reward/mean@1"] == 0.5
    assert metrics["val-core/s/acc/mean@1"] == 1.0


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("n", [1, 2])
def test_verls_own_trainer_takes_a_validation_without_a_single_number(n):
    """Its rows have NaN for a score there, and its means are NaN and neither 0 nor an error."""
    lost = extra_info(LOST)
    infos = {name: [value] * 2 for name, value in lost.items()} | {"reward": [math.nan] * 2}
    metrics = object.__new__(PPOTrainerSync)._val_metrics_update(
        ["s"] * 2, ["u", "v"] if n == 1 else ["u", "u"], infos, [2, 2]
    )
    assert math.isnan(metrics[f"val-core/s/reward/mean@{n}"])
    assert metrics[f"val-aux/s/abstained/mean@{n}"] == 1.0


@pytest.mark.parametrize("n", [1, 2])
def test_a_validation_of_which_nothing_was_measured_has_no_mean_and_no_coverage(n):
    """A judge that compares siblings, as the only component, where a prompt has one response."""
    unmeasured = Reward(None, {"best": Skipped("one response: nothing to compare")})
    rows = [extra_info(unmeasured) for _ in range(2)]
    infos = {name: [row[name] for row in rows] for name in rows[0]} | {"reward": [0.0, 0.0]}
    uids = ["u", "v"] if n == 1 else ["u", "u"]
    metrics = bare({})._val_metrics_update(["s"] * 2, uids, infos, [2, 2], expected_acc_counts={})
    assert math.isnan(metrics["val-core/s/reward/mean"])
    assert metrics["val-core/s/reward/coverage"] == 0.0
    assert metrics["val-aux/s/reward/judged"] == 0.0
    assert not [
        k for k, v in metrics.items() if k.startswith("val-core") and "/mean" in k and v == 0
    ]


def test_what_is_measured_beside_a_comparison_is_the_rows_value():
    rows = [extra_info(judged(1.0, None)), extra_info(judged(0.0, None))]
    infos = {name: [row[name] for row in rows] for name in rows[0]} | {"reward": [1.0, 0.0]}
    metrics = bare({})._val_metrics_update(["s"] * 2, ["u", "v"], infos, [2, 2])
    assert metrics["val-core/s/reward/mean"] == 0.5
    assert metrics["val-core/s/reward/coverage"] == 1.0


def test_a_session_that_failed_in_the_rollout_still_counts_as_a_wrong_answer():
    trainer = bare({})
    infos = {"reward": [1.0], "abstained": [0.0], "acc": [1.0]}
    metrics = trainer._val_metrics_update(
        ["s"], ["u"], infos, [2], expected_acc_counts={("s", "u"): 2}
    )
    assert metrics["val-core/s/acc/mean@2"] == 0.5


def put(queue, key, score):
    scores = torch.zeros(2)
    scores[-1] = score
    columns = {"rm_scores": torch.nested.as_nested_tensor([scores], layout=torch.jagged)}
    queue.put(
        [key], "train", TensorDict(columns, batch_size=1), [{"is_padding": key.startswith("pad")}]
    )


def test_scores_are_corrected_to_those_of_rows_that_have_one(queue):
    for key, score in {"a_0_0": 3.0, "a_1_0": 0.0, "a_2_0": 1.0, "pad_0_0": 0.0}.items():
        put(queue, key, score)
    keys = ["a_0_0", "a_1_0", "a_2_0", "pad_0_0"]
    trainer = bare({})
    trainer.config = OmegaConf.create({"algorithm": {"use_kl_in_reward": False}})
    trainer._settled = {
        "a_0_0": SettledSession(judged(3.0, None), RowTreatment.TRAINED),
        "a_1_0": SettledSession(LOST, RowTreatment.NEUTRAL),
        "a_2_0": SettledSession(judged(1.0, None), RowTreatment.TRAINED),
    }
    tags = [queue.tags["train", key] for key in keys]
    metrics = {"critic/score/mean": 1.0, "critic/score/min": 0.0, "critic/rewards/mean": 1.0}
    trainer._correct_scores(KVBatchMeta(keys=keys, tags=tags, partition_id="train"), metrics)
    assert (metrics["critic/score/mean"], metrics["critic/score/min"]) == (2.0, 1.0)
    assert metrics["critic/rewards/mean"] == 2.0


def test_a_number_that_only_some_rows_have_is_a_metric_wherever_it_comes():
    rewards = [Reward(1.0, {}, {}), Reward(1.0, {}, {"mine/acc": 0.5})]
    assert reward_metrics(rewards)["reward/mine/acc/mean"] == 0.5
    assert reward_metrics(rewards[::-1])["reward/mine/acc/mean"] == 0.5


def test_verl_reads_a_column_of_the_first_row_from_every_row():
    rows = [RowInfo({"mine/acc": 0.5}), RowInfo({})]
    assert [row["mine/acc"] for row in pickle.loads(pickle.dumps(rows))] == [0.5, None]
