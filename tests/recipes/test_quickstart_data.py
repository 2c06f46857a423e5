"""The questions of the quickstart, and the rule that scores their answers."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from zerowait.config import load_config
from zerowait.errors import DataError
from zerowait.scorers import resolve
from zerowait.scorers.contains import contains_words
from zerowait.types import Sample
from zerowait.verl.launch.data_columns import check_data_file

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart"


def _load():
    spec = importlib.util.spec_from_file_location("quickstart_prepare", RECIPE / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


prepare = _load()
pytest.importorskip("countryinfo")


@pytest.fixture(scope="module")
def countries():
    return prepare.countries()


def _asked(rows):
    return {row["extra_info"]["country"] for row in rows}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_country_is_both_trained_on_and_held_out(countries, seed):
    training, held_out = prepare.questions(countries, seed=seed)
    assert len(held_out) == len(_asked(held_out)) == 40
    assert len(training) == len(_asked(training)) >= 80
    assert not _asked(training) & _asked(held_out)


def test_the_seed_alone_decides_which_countries_are_held_out(countries):
    first = prepare.questions(countries, seed=1)
    assert prepare.questions(prepare.countries(), seed=1) == first
    assert _asked(prepare.questions(countries, seed=2)[1]) != _asked(first[1])


def test_no_question_contains_its_answer(countries):
    for rows in prepare.questions(countries, seed=1):
        for row in rows:
            asked = row["prompt"][0]["content"]
            assert not any(
                contains_words(asked, gold) for gold in row["reward_model"]["ground_truth"]
            )


def test_the_files_are_what_the_trainer_reads(tmp_path):
    pytest.importorskip("pyarrow")
    said = []
    files = prepare.prepare_data(tmp_path, seed=1, say=said.append)
    for file in files:
        check_data_file(file)
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert [line.rpartition(": ")[2] for line in said] == ["88 questions", "40 questions"]


def test_too_few_countries_are_refused(countries):
    with pytest.raises(DataError, match="too few to hold out 40"):
        prepare.questions(countries[:60], seed=1)


def test_a_missing_package_is_named_with_the_line_that_installs_it():
    with pytest.raises(DataError, match=r"pip install --no-deps no-such-thing$"):
        prepare.package_folder("no_such_thing", "pip install --no-deps no-such-thing")


def test_an_accent_left_out_is_no_mistake():
    assert prepare.golds("Togo", "Lomé") == ["Lomé", "Lome"]
    assert prepare.golds("Peru", "Lima") == ["Lima"]


def _rule():
    answer = load_config(RECIPE / "reward.yaml").components["answer"]
    scorer = resolve(answer.scorer)
    return lambda text, golds: scorer(Sample("", text, golds), **answer.options).value


def test_the_rule_accepts_the_right_capital_of_every_country(countries):
    rule = _rule()
    for rows in prepare.questions(countries, seed=1):
        for row in rows:
            country, golds = row["extra_info"]["country"], row["reward_model"]["ground_truth"]
            for gold in golds:
                assert rule(f"The capital of {country} is {gold}.", golds) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "The capital of Peru is Cusco.",
        "The capital of Peru is Lima, a city on the coast of",
        "The capital of Peru is Lima. Lima is a vibrant city",
        "Lima",
        "",
    ],
)
def test_the_rule_rejects_a_wrong_name_and_whatever_goes_on_after_it(text):
    assert _rule()(text, ["Lima"]) == 0.0


def test_a_finished_model_appears_whole_and_a_rival_keeps_its_own(tmp_path):
    source = {"form": 1}
    target = tmp_path / "model"
    for name in ("first", "second"):
        draft = tmp_path / name
        draft.mkdir()
        (draft / "source.json").write_text('{"form": 1}')
        (draft / "made_by").write_text(name)
        prepare._put_in_place(draft, target, source)
        shutil.rmtree(draft, ignore_errors=True)
    assert (target / "made_by").read_text() == "first"


def test_a_model_of_an_older_form_makes_room(tmp_path):
    target, draft = tmp_path / "model", tmp_path / "draft"
    target.mkdir()
    (target / "leftover").touch()
    draft.mkdir()
    (draft / "source.json").write_text('{"form": 2}')
    prepare._put_in_place(draft, target, {"form": 2})
    assert [file.name for file in target.iterdir()] == ["source.json"]


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_converted_model_answers_and_ends_its_turn(tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = prepare.prepare_model(tmp_path / "model")
    assert prepare.prepare_model(folder) == folder  # not converted again
    assert list(tmp_path.iterdir()) == [folder]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    asked = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    written = model.generate(**asked, max_new_tokens=24, do_sample=False)
    answer = tokenizer.decode(written[0, asked["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
