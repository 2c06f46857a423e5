"""Keys that verl ignores, or that take rewards past zerowait, in every spelling."""

import pytest

from zerowait.verl.launch.ignored_keys import examine

OURS = "pkg://zerowait.verl.dataset"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"reward_model.reward_manager": "batch"}, "accepted and ignored by verl 0.9.1"),
        ({"++reward_model.reward_manager": "batch"}, "accepted and ignored by verl 0.9.1"),
        ({"reward_model": {"reward_manager": "batch"}}, "accepted and ignored by verl 0.9.1"),
        ({"+reward_model": "{reward_manager: batch}"}, "accepted and ignored by verl 0.9.1"),
        ({"custom_reward_function": {"path": "x.py"}}, "accepted and ignored by verl 0.9.1"),
        ({"reward.reward_manager.name": "naive"}, "keeps reward.yaml from being read"),
        ({"reward.reward_manager.name": '"naive"'}, "keeps reward.yaml from being read"),
        ({"reward": {"reward_manager": {"name": "dapo"}}}, "keeps reward.yaml from being read"),
        ({"reward.reward_manager": "{name:naive}"}, "keeps reward.yaml from being read"),
        ({"reward.reward_manager.name": None}, "keeps reward.yaml from being read"),
        ({"reward.reward_manager.name": "prime"}, "no longer exists"),
        ({"reward.reward_manager.source": "importlib"}, "does not read reward.yaml"),
        ({"reward.reward_manager": None}, "takes the place of what rewards need"),
        ({"reward": "dapo"}, "takes the place of what rewards need"),
        ({"~reward.zerowait": ""}, "takes the rewards out"),
        ({"~data": "null"}, "takes the rewards out"),
        ({"data.custom_cls.path": None}, "leaves out the data set"),
        ({"data.custom_cls.path": "null"}, "leaves out the data set"),
        ({"data": {"custom_cls": {"path": "mine.py"}}}, "leaves out the data set"),
        ({"reward.reward_model.enable": True}, "never asks the reward manager"),
        ({"reward": "{reward_model: {enable: true}}"}, "never asks the reward manager"),
        ({"reward.custom_reward_function.path": "x.py"}, "never called by the reward manager"),
        ({"+reward.reward_kwargs.x": 1}, "never read by the reward manager"),
        ({"reward.sandbox_fusion.url": "http://h"}, "for verl's own scoring functions"),
        ({"reward.reward_manager.module.path": "x.py"}, "with reward.reward_manager.source"),
        ({"+reward.max_rpm": 60}, "write traffic: {rpm: n} in reward.yaml"),
        ({"+reward": "{max_concurrent: 4}"}, "write traffic: {concurrency: n} in reward.yaml"),
        ({"algorithm.filter_groups.max_num_gen_batches": 10}, "max_inflight_gen_batches"),
        ({"trainer.use_v1": "False"}, "knows no trainer mode"),
        ({"algorithm.adv_estimator": "gdpo"}, "take grpo, the nearest that it runs"),
        ({"algorithm": {"adv_estimator": "remax"}}, "take rloo, the nearest that it runs"),
        (
            {
                "algorithm.adv_estimator": "grpo_vectorized",
                "algorithm.norm_adv_by_std_in_grpo": "False",
            },
            "does not reach grpo_vectorized",
        ),
        ({"actor_rollout_ref.model.external_lib": "[a,b]"}, "imports nothing"),
        (
            {
                "trainer.v1.trainer_mode": "zerowait",
                "trainer.v1.sampler.custom_sampler.path": "x.py",
            },
            "takes the place of the replay buffer",
        ),
    ],
)
def test_a_trap_is_found_however_it_is_spelled(overrides, says):
    assert any(says in str(finding) for finding in examine(overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        {"reward.reward_manager.name": "zerowait"},
        {"data.custom_cls.path": OURS},
        {"data": {"custom_cls": {"path": OURS, "name": "RewardDataset"}}},
        {"trainer.total_epochs": 3, "+trainer.mine": {"a": [1]}},
        {"reward.num_workers": "2"},
        {"trainer.use_v1": True, "actor_rollout_ref.model.external_lib": "mine"},
        {"trainer.v1.sampler.custom_sampler.path": "x.py"},
        {"algorithm.filter_groups.enable": True},
        {"reward.reward_model.enable": "False"},
    ],
)
def test_what_is_fine_is_left_alone(overrides):
    assert examine(overrides) == []
