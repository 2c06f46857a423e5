"""Small models that live in memory, and verl imported once with its own warnings kept out."""

import warnings
from types import SimpleNamespace

import pytest
import torch
import transfer_queue
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl  # noqa: F401
    from transformers import LlamaConfig, LlamaForCausalLM

from zerowait.verl.cpu.rollout import attention

VOCABULARY = 61

# Where every core is busy, the threads of a small sum wait for each other much longer than they sum
torch.set_num_threads(1)


def small_model(*, layers=2, heads=4, groups=2, tied=True, seed=0):
    """A random Llama that computes in a millisecond, with peaked enough logits to be greedy on."""
    attention.register()
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        attn_implementation=attention.ATTENTION_NAME,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def model():
    return small_model()


@pytest.fixture
def tokenizer():
    """Token ids are letters: 0 is a, 1 is b."""
    return SimpleNamespace(
        eos_token_id=2, decode=lambda ids: "".join(chr(ord("a") + int(token)) for token in ids)
    )


class Queue:
    """verl's TransferQueue in this process: rows by partition and key, tensors as they come back."""

    def __init__(self):
        self.rows = {}
        self.tags = {}

    def put(self, keys, partition_id, fields=None, tags=None, **_):
        for place, key in enumerate(keys):
            row = self.rows.setdefault((partition_id, key), {})
            for name in fields.keys() if fields is not None else ():
                value = fields[name]
                parts = value.unbind() if isinstance(value, torch.Tensor) else list(value)
                part = parts[place]
                row[name] = part.clone() if isinstance(part, torch.Tensor) else part
            if tags is not None:
                self.tags.setdefault((partition_id, key), {}).update(tags[place])
        told = [dict(self.tags.get((partition_id, key), {})) for key in keys]
        names = list(self.rows[partition_id, keys[0]]) if keys else []
        return KVBatchMeta(keys=list(keys), tags=told, partition_id=partition_id, fields=names)

    def get(self, keys, partition_id, select_fields=None):
        rows = [self.rows[partition_id, key] for key in keys]
        known = {name for row in rows for name in row}
        wanted = [name for name in select_fields or known if name in known]
        columns = {}
        for name in wanted:
            column = [row[name] for row in rows]  # a KeyError: some rows lack what others have
            tensors = all(isinstance(value, torch.Tensor) for value in column)
            columns[name] = (
                torch.nested.as_nested_tensor(column, layout=torch.jagged)
                if tensors
                else NonTensorStack(*column)
            )
        return TensorDict(columns, batch_size=len(keys))

    def list(self, partition_id=None):
        found = {}
        for (partition, key), tag in self.tags.items():
            if partition_id in (None, partition):
                found.setdefault(partition, {})[key] = dict(tag)
        return found

    def clear(self, keys, partition_id):
        for key in keys:
            self.rows.pop((partition_id, key), None)
            self.tags.pop((partition_id, key), None)


@pytest.fixture
def queue(monkeypatch):
    held = Queue()
    monkeypatch.setattr(transfer_queue, "kv_batch_put", held.put)
    monkeypatch.setattr(transfer_queue, "kv_batch_get", held.get)
    monkeypatch.setattr(transfer_queue, "kv_list", held.list)
    monkeypatch.setattr(transfer_queue, "kv_clear", held.clear)
    return held
