"""Batch APIs for verl's users: a reward manager for whole batches, and a client for one judge.

Each builds a reward configuration and passes it to the engine. Importing this loads neither verl,
Ray nor torch.
"""

from zerowait.verl.batch.manager import LengthPenaltyRewardManager
from zerowait.verl.batch.openai import AsyncOpenAIManager, AsyncOpenAIWorker, get_request_hash
from zerowait.verl.batch.settings import LengthPenaltyConfig

__all__ = [
    "AsyncOpenAIManager",
    "AsyncOpenAIWorker",
    "LengthPenaltyConfig",
    "LengthPenaltyRewardManager",
    "get_request_hash",
]
