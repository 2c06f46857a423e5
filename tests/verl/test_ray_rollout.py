"""The rollout server as Ray runs it: what reaches it while many wait to be answered."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import ray

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from zerowait.verl.cpu.rollout.replica import server_actor
    from zerowait.verl.cpu.rollout.weights import pack
    from zerowait.verl.plugin import ROLLOUT_CALLS

from .conftest import small_model
from .test_rollout_server import GREEDY, PROMPT, rollout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LONG_S = 120
MANY = 1_500
"""More than Ray gives an actor at a time when it is told nothing, and more than verl asks for."""


class Letters:
    """Token ids are letters."""

    eos_token_id = 2

    def decode(self, ids):
        return "".join(chr(ord("a") + int(token)) for token in ids)


@pytest.fixture(scope="module")
def cluster(under_ray):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with under_ray():
        yield


@pytest.fixture
def server(cluster, tmp_path):
    model = small_model()
    model.save_pretrained(tmp_path)
    config = SimpleNamespace(
        local_path=str(tmp_path),
        hf_config=model.config,
        trust_remote_code=False,
        generation_config=None,
        tokenizer=Letters(),
    )
    here = ray.get_runtime_context().get_node_id()
    actor = server_actor(0, node_id=here, environment={}, calls=ROLLOUT_CALLS).remote(
        rollout(max_num_seqs=256), config, device="cpu", replica_rank=0
    )
    yield actor
    ray.kill(actor)


def test_new_weights_are_not_kept_out_by_requests_that_wait_for_them(server):
    """verl stops decoding before an update, and rollouts go on asking."""
    state = small_model(seed=9).state_dict()
    ray.get(server.abort_all_requests.remote(), timeout=LONG_S)
    waiting = [server.generate.remote("r", PROMPT, GREEDY) for _ in range(MANY)]
    ray.get(server.begin_update.remote(), timeout=LONG_S)
    ray.get(server.load_weights.remote([pack(*named) for named in state.items()]), timeout=LONG_S)
    ray.get(server.finish_update.remote(4), timeout=LONG_S)
    ray.get(server.resume_generation.remote(), timeout=LONG_S)
    outputs = ray.get(waiting, timeout=LONG_S)
    assert {output.extra_fields["global_steps"] for output in outputs} == {4}
    assert len({tuple(output.token_ids) for output in outputs}) == 1
