"""Rewards behind the faces that verl's users call themselves: batches, functions, settings.

They are thin: each makes a reward configuration and hands it to the engine. Importing this loads
neither verl, Ray nor torch.
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
