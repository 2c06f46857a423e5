import json
import warnings

import pytest
from omegaconf import OmegaConf

from zerowait.errors import ConfigError, DataError
from zerowait.verl.dataset import RewardDataset, group_size_of, split_of

ROLLOUT = {"rollout": {"n": 6, "val_kwargs": {"n": 2}}}


def rows(path, count, **extra):
    with path.open("w") as lines:
        for number in range(count):
            row = {
                "data_source": "sums",
                "prompt": [{"role": "user", "content": f"{number}+1?"}],
                "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
                **extra,
            }
            lines.write(json.dumps(row) + "\n")
    return str(path)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    train = rows(tmp_path / "train.jsonl", 3)
    val = rows(tmp_path / "val.jsonl", 2, extra_info={"split": "test", "index": 70})
    data = {
        "train_files": [train],
        "val_files": [val],
        "prompt_key": "prompt",
        "filter_overlong_prompts": False,
        "cache_dir": str(tmp_path / "verl"),
    }
    return OmegaConf.create({"data": data, "actor_rollout_ref": ROLLOUT})


def dataset(files, config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RewardDataset(data_files=files, tokenizer=None, processor=None, config=config.data)


def test_training_rows_are_stamped_with_split_and_group_size(config):
    made = dataset(config.data.train_files, config)
    stamps = [made[at]["extra_info"] for at in range(3)]
    assert stamps == [{"split": "train", "group_size": 6, "index": at} for at in range(3)]
    assert [made[at]["index"] for at in range(3)] == [0, 1, 2]


def test_validation_rows_are_stamped_over_the_files_own_split(config):
    made = dataset(config.data.val_files, config)
    assert made[0]["extra_info"] == {"split": "validation", "group_size": 2, "index": 70}


def test_a_file_without_ground_truth_is_refused_before_it_is_read(config, tmp_path):
    bad = rows(tmp_path / "bad.jsonl", 1, reward_model={"style": "rule"})
    config.data.train_files = [bad]
    with pytest.raises(DataError, match="ground_truth"):
        dataset(config.data.train_files, config)


def test_the_same_lists_of_files_are_told_apart_by_their_place():
    data = OmegaConf.create({"train_files": ["a"], "val_files": ["a"]})
    assert split_of(data.train_files, data) == "train"
    assert split_of(data.val_files, data) == "validation"


def test_the_same_single_file_cannot_be_told_apart_and_says_what_to_write():
    data = OmegaConf.create({"train_files": "a", "val_files": "a"})
    with pytest.raises(ConfigError, match=r"write both as lists"):
        split_of(data.train_files, data)


def test_files_from_elsewhere_are_refused():
    data = OmegaConf.create({"train_files": "a", "val_files": "b"})
    assert split_of("b", data) == "validation"
    with pytest.raises(ConfigError, match="neither"):
        split_of("c", data)


def test_a_lone_data_section_cannot_say_the_group_size():
    with pytest.raises(ConfigError, match=r"rollout\.n"):
        group_size_of("train", OmegaConf.create({"train_files": "a"}))


def test_a_prompt_with_a_number_of_responses_of_its_own_is_a_group_of_that_size(config, tmp_path):
    config.data.train_files = [rows(tmp_path / "own.jsonl", 1, __rollout_n__=3)]
    made = dataset(config.data.train_files, config)
    assert made[0]["extra_info"]["group_size"] == 3
