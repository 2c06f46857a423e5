"""verl's rollout ``transformers``: continuous batching on plain transformers, on a CPU or a GPU.

replica     launches one server actor per data-parallel rank
server      the actor, with verl's server interface
loop        scheduler: admits requests, pauses, aborts
batch       one left-padded batch with its KV cache, one token per row and step
cache       the KV cache: rows come and go without copying the others
graph       a decoding step as a CUDA graph
generation  one request: prompt, sampling parameters, tokens so far
sampling    pure: from logits to tokens and their log-probabilities
attention   grouped-query attention without copies of keys and values
model       loads the model, and moves it between devices
settings    settings of the server, from verl's configuration
adapter     in the training worker: sends new weights to the server
weights     new weights: packed, sent in buckets, loaded
"""
