"""What verl's own trainers are refused before they start."""

import random
from collections import Counter

import pytest
from omegaconf import OmegaConf

from zerowait.config import load_config
from zerowait.errors import ConfigError
from zerowait.verl.rewards.streaming_rules import check_streaming, reward_workers

REWARD = """
components: {{quality: {{judge: q}}}}
judges: {{q: {{endpoints: [{{base_url: "http://h/v1", model: m}}], verdict: {{integer: [1, 10]}}}}}}
on_failure: {policy}
"""


def verl_config(
    *, n, estimator="grpo", batch=4, mode="sync", refill=False, own=None, warmup=1.5, workers=1
):
    modes = {"trainer_mode": mode, "sync": {}, "colocate_async": {"num_warmup_batches": warmup}}
    modes["separate_async"] = {"num_warmup_batches": warmup}
    modes["sampler"] = {"sync_refill_failed_groups": refill}
    return OmegaConf.create(
        {
            "trainer": {"v1": modes},
            "data": {"train_batch_size": batch},
            "actor_rollout_ref": {"rollout": {"n": n}},
            "reward": {"num_workers": workers, "zerowait": {"config": "reward.yaml"} | (own or {})},
            "algorithm": {"adv_estimator": estimator},
        }
    )


def checked(tmp_path, policy, **verl):
    path = tmp_path / "reward.yaml"
    path.write_text(REWARD.format(policy=policy))
    return check_streaming(path, verl_config(**verl))


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce_plus_plus_baseline"])
@pytest.mark.parametrize("policy", ["neutral", "{default: raise, refused: neutral}"])
def test_neutral_needs_siblings(tmp_path, policy, estimator):
    with pytest.raises(ConfigError, match=r"reward.yaml:4: .*no siblings to be neutral against"):
        checked(tmp_path, policy, n=1, estimator=estimator)


@pytest.mark.parametrize(
    ("policy", "verl"),
    [
        ("neutral", {"n": 2}),
        ("raise", {"n": 1}),
        ("{default: {value: 0}}", {"n": 1}),
        ("neutral", {"n": 1, "estimator": "reinforce_plus_plus"}),
    ],
)
def test_other_choices_may_start(tmp_path, policy, verl):
    assert checked(tmp_path, policy, **verl) is False


@pytest.mark.parametrize("policy", ["raise", "{default: neutral, refused: raise}"])
@pytest.mark.parametrize("verl", [{"mode": "colocate_async"}, {"refill": True}])
def test_raise_is_refused_where_verl_would_draw_other_prompts_for_ever(tmp_path, policy, verl):
    """It replaces each prompt whose rewards raised, so that nothing would ever end the training."""
    with pytest.raises(ConfigError, match=r"reward.yaml:4: .*they would draw for ever"):
        checked(tmp_path, policy, n=2, **verl)


@pytest.mark.parametrize("key", ["redeem_s", "max_abstained"])
def test_a_limit_that_verls_own_trainers_do_not_keep_is_refused(tmp_path, key):
    with pytest.raises(
        ConfigError, match=rf"reward.zerowait.{key} is read in .* zerowait_sep.*nly"
    ):
        checked(tmp_path, "neutral", n=2, own={key: 0.5})


def test_an_estimator_that_verls_trainer_cannot_run_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(
        ConfigError, match=r"adv_estimator=optimal_token_baseline cannot .* take op"
    ):
        checked(tmp_path, "neutral", n=4, estimator="optimal_token_baseline")


SHAPED = """
components: {answer: {scorer: qa_em}, length: {shape: median_band}}
"""


@pytest.mark.parametrize(("mode", "batch"), [("sync", 251), ("colocate_async", 101)])
def test_more_rows_than_the_workers_hold_waiting_are_refused(tmp_path, mode, batch):
    """Asynchronous modes have batches under way before the one that is trained on."""
    path = tmp_path / "reward.yaml"
    path.write_text(SHAPED)
    assert check_streaming(path, verl_config(n=4, batch=batch - 1, mode=mode))
    with pytest.raises(ConfigError, match=r"1 reward workers hold 1000: set reward.num_workers=2"):
        check_streaming(path, verl_config(n=4, batch=batch, mode=mode))
    check_streaming(path, verl_config(n=4, batch=batch, mode=mode, workers=2))


@pytest.mark.parametrize(
    ("mode", "batch", "workers"),
    [
        ("sync", 64, 1),
        ("colocate_async", 64, 2),
        ("separate_async", 64, 2),
        ("sync", 256, 3),
        ("colocate_async", 256, 6),
        ("separate_async", 256, 6),
        *((f"zerowait{rest}", batch, 1) for rest in ("", "_colocate_async") for batch in (64, 256)),
    ],
)
def test_batches_of_any_size_get_the_workers_that_hold_them(tmp_path, mode, batch, workers):
    path = tmp_path / "reward.yaml"
    path.write_text(SHAPED)
    config = verl_config(n=8, batch=batch, mode=mode, warmup=1)
    assert reward_workers(load_config(path), config) == workers


def test_rows_that_wait_for_nobody_need_one_worker(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("components: {answer: {scorer: qa_em}}")
    assert reward_workers(load_config(path), verl_config(n=8, batch=4096)) == 1


def test_no_worker_gets_more_rows_than_it_holds_although_verl_draws_it_for_each_row(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(SHAPED)
    draw = random.Random(0)
    for batch in (126, 200, 256, 300, 512):
        workers = reward_workers(load_config(path), verl_config(n=8, batch=batch))
        for _ in range(20):
            counts = Counter(draw.choices(range(workers), k=8 * batch))
            assert max(counts.values()) <= 1000


COMPARED = """
components: {{best: {{judge: q, weight: {weight}}}, answer: {{scorer: qa_em}}}}
judges: {{q: {{endpoints: [{{base_url: "http://h/v1", model: m}}], verdict: {verdict}}}}}
on_failure: raise
"""


@pytest.mark.parametrize(
    "verdict", ["{pairs: group}", "{rank: group}", "{pairs: group, rounds: 2}"]
)
def test_a_judge_that_compares_siblings_needs_some(tmp_path, verdict):
    path = tmp_path / "reward.yaml"
    path.write_text(COMPARED.format(verdict=verdict, weight=1))
    with pytest.raises(ConfigError, match=r"reward.yaml:2: components.best compares .*rollout.n"):
        check_streaming(path, verl_config(n=1))
    check_streaming(path, verl_config(n=2))


@pytest.mark.parametrize(
    ("verdict", "weight"),
    [("{pairs: reference}", 1), ("{integer: [1, 10]}", 1), ("{pairs: group}", 0)],
)
def test_what_is_measured_alone_or_counts_nothing_needs_no_siblings(tmp_path, verdict, weight):
    path = tmp_path / "reward.yaml"
    path.write_text(COMPARED.format(verdict=verdict, weight=weight))
    check_streaming(path, verl_config(n=1))
