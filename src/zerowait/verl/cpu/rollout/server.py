"""The rollout server of one replica: a Ray actor with the interface that verl expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.replica import TokenOutput

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.batch import DecodingBatch
from zerowait.verl.cpu.rollout.generation import Generation
from zerowait.verl.cpu.rollout.loop import DecodingLoop, LoopStats
from zerowait.verl.cpu.rollout.model import free_bytes, load_model, move_weights
from zerowait.verl.cpu.rollout.sampling import Sampling, SamplingDefaults, sampling_from
from zerowait.verl.cpu.rollout.settings import (
    bytes_per_token,
    check_attention,
    limits_from,
    prompt_key,
    response_seed,
    rollout_settings_from,
    stop_ids_of,
)
from zerowait.verl.cpu.rollout.weights import PackedTensor, WeightLoader


class TransformersServer:
    """Rollout server: token ids in, token ids and log-probabilities out.

    Args:
        rollout: verl's rollout configuration.
        model_config: verl's model configuration.
        device: ``cpu`` or ``cuda``.
        replica_rank: of this replica.
    """

    def __init__(self, rollout: Any, model_config: Any, *, device: str, replica_rank: int) -> None:
        self._rollout = rollout
        self._replica_rank = replica_rank
        self._settings = rollout_settings_from(rollout.engine_kwargs.get("transformers") or {})
        if device == "cpu" and self._settings.threads:
            torch.set_num_threads(self._settings.threads)
        model_config = omega_conf_to_dataclass(model_config)
        self._tokenizer = model_config.tokenizer
        self._stop_ids = stop_ids_of(self._tokenizer, model_config.generation_config)
        self._model = load_model(model_config, device=device, dtype=rollout.dtype)
        self._home = self._model.device
        text = self._model.config.get_text_config()
        self._longest = int(rollout.max_model_len or text.max_position_embeddings)
        check_attention(text, rollout.prompt_length + rollout.response_length)
        limits = limits_from(
            rollout,
            self._settings,
            token_bytes=bytes_per_token(text, self._model.dtype.itemsize),
            free_bytes=free_bytes(self._model, rollout.gpu_memory_utilization),
        )
        graphs = self._settings.graphs and device != "cpu"
        batch = DecodingBatch(self._model, limits, graphs=graphs)
        self._loop = DecodingLoop(batch, quiet_s=self._settings.quiet_s)
        self._loader: WeightLoader | None = None
        self._version = 0
        self._repeats: Counter[tuple[object, ...]] = Counter()

    async def generate(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        **media: Any,
    ) -> TokenOutput:
        """The response to one prompt.

        Args:
            request_id: not used.
            prompt_ids: tokens of the prompt.
            sampling_params: with vLLM's names.
            **media: images and the like, which must be empty.

        Raises:
            ConfigError: a sampling parameter is unknown, or the prompt has more than text.
            ValueError: the prompt leaves no room for a response.
        """
        del request_id  # a new one for every turn
        shown = sorted(name for name, value in media.items() if value)
        if shown:
            raise ConfigError(f"the transformers rollout reads text only, but got {shown}")
        generation = self._generation([int(token) for token in prompt_ids], sampling_params)
        await self._loop.generate(generation)
        wants = bool(sampling_params.get("logprobs"))
        return TokenOutput(
            token_ids=generation.token_ids,
            log_probs=generation.log_probs if wants else None,
            stop_reason="aborted" if generation.finish == "aborted" else "completed",
            extra_fields={"global_steps": self._version},
        )

    def _generation(self, prompt_ids: list[int], given: Mapping[str, Any]) -> Generation:
        rollout = self._rollout
        room = self._longest - len(prompt_ids)
        if room < 1:
            raise ValueError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room for a response: the model "
                f"takes {self._longest}"
            )
        whole = rollout.prompt_length + rollout.response_length
        defaults = SamplingDefaults(
            max_tokens=min(rollout.response_length, whole - len(prompt_ids)),
            room=room,
            stop_ids=self._stop_ids,
            ignore_eos=rollout.ignore_eos,
        )
        sampling = sampling_from(given, defaults)
        seed = self._seed(prompt_ids, sampling) if self._settings.seeded else None
        return Generation(prompt_ids, sampling, seed=seed, decode=self._tokenizer.decode)

    def _seed(self, prompt_ids: Sequence[int], sampling: Sampling) -> int:
        key = prompt_key(prompt_ids)
        # Repetitions are counted per sampling parameters: a validation with the prompts of the
        # training, as before the first step of a resumed run, must not shift the training's seeds.
        how = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.repetition_penalty)
        repeat = self._repeats[key, *how]
        self._repeats[key, *how] += 1
        return response_seed(
            self._rollout.seed,
            replica=self._replica_rank,
            version=self._version,
            prompt=key,
            repeat=repeat,
        )

    # ------------------------------------------------------------------ weights

    async def begin_update(self) -> None:
        """Stop decoding for new weights, with which open responses will continue."""
        await self._loop.evict("weights")
        self._loader = WeightLoader(self._model)

    async def load_weights(self, bucket: Sequence[PackedTensor]) -> None:
        """Write a bucket of weights into the model.

        Raises:
            WeightMismatchError: the model has no such weight.
        """
        loader = self._open_loader()
        await self._loop.run(lambda: loader.load(bucket))

    async def finish_update(self, global_steps: int | None) -> int:
        """Resume decoding with the new weights of step `global_steps`; returns their number.

        Raises:
            WeightMismatchError: some weights were not sent.
        """
        count = self._open_loader().finish()
        self._loader = None
        if global_steps is not None:
            await self.set_global_steps(global_steps)
        self._loop.resume("weights")
        return count

    async def set_global_steps(self, global_steps: int) -> None:
        """Set the version of the weights."""
        self._version = global_steps
        self._repeats.clear()

    def _open_loader(self) -> WeightLoader:
        if self._loader is None:
            raise RuntimeError("weights came without begin_update")
        return self._loader

    # ------------------------------------------------------------------ verl's other calls

    async def sleep(self) -> None:
        """Free memory for the trainer: the cache, and on a GPU the weights."""
        if not self._rollout.free_cache_engine:
            return
        await self._loop.evict("sleep")
        await self._loop.run(lambda: move_weights(self._model, torch.device("cpu")))

    async def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Load the weights back, resume decoding, or both, as `tags` say."""
        if tags is None or "weights" in tags:
            await self._loop.run(lambda: move_weights(self._model, self._home))
        if tags is None or "kv_cache" in tags:
            self._loop.resume("sleep")

    async def abort_all_requests(self, *, reject_request: bool = False) -> dict[str, int]:
        """Abort all responses that have begun; the others wait, or are rejected, until a resume."""
        return {"aborted_count": await self._loop.abort(reject=reject_request)}

    async def resume_generation(self) -> None:
        """Accept requests again after `abort_all_requests`."""
        self._loop.accept_requests()

    async def release_kv_cache(self) -> None:
        """Free the cache and keep the weights."""
        await self._loop.evict("kv_cache")

    async def resume_kv_cache(self) -> None:
        """Resume decoding after `release_kv_cache`."""
        self._loop.resume("kv_cache")

    async def clear_kv_cache(self) -> None:
        """Does nothing: the cache holds open responses only."""

    async def start_profile(self, **_: Any) -> None:
        """Does nothing: only training workers are profiled."""

    async def stop_profile(self) -> None:
        """Does nothing, as `start_profile`."""

    async def stats(self) -> LoopStats:
        """The server's counts so far."""
        return self._loop.stats

    async def aclose(self) -> None:
        """Abort all responses and end the decoding thread."""
        await self._loop.aclose()
