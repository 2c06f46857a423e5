import io
import json
import pickle
import warnings
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf
from PIL import Image

from zerowait.errors import ConfigError, DataError
from zerowait.pictures import picture_data
from zerowait.verl.dataset import RewardDataset, group_size_of, split_of
from zerowait.verl.rewards.manager import _prompt

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
    val = rows(tmp_path / "val.jsonl", 1, extra_info={"split": "test", "index": 70})
    data = {
        "train_files": [train],
        "val_files": [val],
        "prompt_key": "prompt",
        "filter_overlong_prompts": False,
        "truncation": "left",
        "cache_dir": str(tmp_path / "verl"),
    }
    return OmegaConf.create({"data": data, "actor_rollout_ref": ROLLOUT})


class Words:
    """A chat template of one token a word."""

    def apply_chat_template(self, messages, *, enable_thinking=False, **_):
        extra = [7] if enable_thinking else []
        return [len(w) for message in messages for w in message["content"].split()] + extra


def dataset(files, config, tokenizer=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RewardDataset(
            data_files=files, tokenizer=tokenizer, processor=None, config=config.data
        )


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


def two_files(tmp_path, *indices):
    return [
        rows(tmp_path / f"part{number}.jsonl", 1, extra_info={"index": index})
        for number, index in enumerate(indices)
    ]


def test_the_files_own_indices_are_kept_where_they_are_unique(config, tmp_path):
    config.data.train_files = two_files(tmp_path, 70, 71)
    made = dataset(config.data.train_files, config)
    assert [made[at]["index"] for at in range(2)] == [70, 71]


def test_files_that_each_count_from_nought_give_rows_with_unique_indices(config, tmp_path):
    config.data.train_files = two_files(tmp_path, 5, 5)
    made = dataset(config.data.train_files, config)
    assert [made[at]["extra_info"]["index"] for at in range(2)] == [0, 1]
    assert [made[at]["extra_info"]["file_index"] for at in range(2)] == [5, 5]


def asked(path, *questions):
    """A file of prompts, each of so many words."""
    row = {"data_source": "s", "reward_model": {"ground_truth": "1"}}
    lines = [row | {"chat": [{"role": "user", "content": text}]} for text in questions]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def long(config, tmp_path):
    config.data.train_files = [asked(tmp_path / "long.jsonl", "one two", "one two three four")]
    config.data.prompt_key = "chat"
    config.data.max_prompt_length = 3
    return config


def test_a_prompt_that_is_too_long_is_an_error_that_says_how_long(long):
    long.data.truncation = "error"
    with pytest.raises(DataError, match=r"long\.jsonl, row 2: the prompt has 4 tokens .* is 3"):
        dataset(long.data.train_files, long, Words())


def test_the_chat_template_and_its_options_count_towards_the_length(long):
    long.data.truncation = "error"
    long.data.max_prompt_length = 4
    assert len(dataset(long.data.train_files, long, Words())) == 2
    long.data.apply_chat_template_kwargs = {"enable_thinking": True}
    with pytest.raises(DataError, match="has 5 tokens"):
        dataset(long.data.train_files, long, Words())


def test_prompts_may_lose_their_beginning_where_that_was_asked_for(long):
    assert len(dataset(long.data.train_files, long, Words())) == 2


def test_a_way_to_cut_that_rollouts_do_not_have_is_refused(long):
    long.data.truncation = "middle"
    with pytest.raises(ConfigError, match="write left, error"):
        dataset(long.data.train_files, long, Words())


def test_prompts_that_are_too_long_are_left_out_unless_none_would_be_left(long):
    long.data.filter_overlong_prompts = True
    long.data.filter_overlong_prompts_workers = None
    assert len(dataset(long.data.train_files, long, Words())) == 1
    long.data.max_prompt_length = 1
    with pytest.raises(DataError, match="every row was left out"):
        dataset(long.data.train_files, long, Words())


def test_extra_columns_come_along_for_rollouts_and_extra_info_for_rewards(config, tmp_path):
    config.data.train_files = [rows(tmp_path / "e.jsonl", 1, hop=2, extra_info={"level": "easy"})]
    row = dataset(config.data.train_files, config)[0]
    assert row["hop"] == 2
    assert row["extra_info"]["level"] == "easy"


@pytest.mark.parametrize("split", ["train", "val"])
def test_mappings_that_were_written_down_as_json_are_read(config, tmp_path, split):
    """Parquet of many a tool has one column of text where others have a struct."""
    texts = {"reward_model": json.dumps({"ground_truth": ["2", "two"]})}
    texts["extra_info"] = json.dumps({"index": 7, "level": "easy"})
    config.data[f"{split}_files"] = [rows(tmp_path / "texts.jsonl", 2, **texts)]
    made = dataset(config.data[f"{split}_files"], config)
    row = made[1]
    assert row["reward_model"] == {"ground_truth": ["2", "two"]}
    assert row["extra_info"]["level"] == "easy"
    assert row["extra_info"]["index"] == 1  # both rows say 7
    assert row["extra_info"]["file_index"] == 7
    assert row["raw_prompt"][0]["content"] == "1+1?"
    assert pickle.loads(pickle.dumps(made)).split == made.split


def test_mappings_as_json_are_read_where_long_prompts_are_left_out_too(config, tmp_path):
    config.data.filter_overlong_prompts = True
    config.data.filter_overlong_prompts_workers = None
    config.data.max_prompt_length = 3
    text = json.dumps({"ground_truth": "1"})
    config.data.train_files = [rows(tmp_path / "texts.jsonl", 2, reward_model=text)]
    made = dataset(config.data.train_files, config, Words())
    assert made[0]["reward_model"] == {"ground_truth": "1"}


def test_a_rows_pictures_reach_the_judge_bit_for_bit(config, tmp_path):
    """verl splits the prompt at ``<image>`` and opens the column's bytes with PIL."""
    written = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(written, format="JPEG")
    row = {
        "prompt": [{"role": "user", "content": "<image>What is it?"}],
        "reward_model": {"ground_truth": "a cat"},
        "images": [{"bytes": written.getvalue(), "path": None}],
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "pictures.parquet")
    config.data.train_files = [str(tmp_path / "pictures.parquet")]
    made = RewardDataset(
        data_files=config.data.train_files,
        tokenizer=None,
        processor=SimpleNamespace(),
        config=config.data,
    )
    first, second = _prompt(made[0]["raw_prompt"])[0]["content"]
    assert picture_data(first["image_url"]["url"]) == (written.getvalue(), "jpeg")
    assert second == {"type": "text", "text": "What is it?"}
