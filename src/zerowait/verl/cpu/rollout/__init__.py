"""A rollout for verl on plain transformers, for a CPU or for a GPU without vLLM.

replica   launches one server actor per data-parallel rank
server    the actor: verl's server interface
loop      asyncio: who is decoded when; gathers, admits, pauses, aborts
batch     torch: one left-padded batch with its cache, one token per step
cache     keys and values of the batch: rows come and go without copying the others
sampling  pure: logits in, tokens and their log-probabilities out
adapter   inside the training worker: sends new weights to the server
"""
