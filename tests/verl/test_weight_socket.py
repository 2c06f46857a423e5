"""Two trainings with vLLM on one host: verl's socket for weights has one name for both."""

import subprocess
import sys

import pytest

from zerowait.errors import ConfigError
from zerowait.verl.launch.training_setup import TrainingSetup
from zerowait.verl.launch.weight_socket import weight_socket

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
NAME = f"\0zerowait-test-{id(sys)}"
OTHER = """\
import sys
from zerowait.verl.launch.training_setup import TrainingSetup
from zerowait.verl.launch.weight_socket import weight_socket
with weight_socket(TrainingSetup(model_path="m", train_files=[], val_files=[], engine="vllm"), name="\\0" + sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def setup(**more):
    return TrainingSetup(model_path="m", train_files=[], val_files=[], **{"engine": "vllm"} | more)


@pytest.fixture
def another():
    """A training in another process, which holds the place."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, NAME[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_training_with_a_ray_of_its_own_is_refused_until_the_first_is_dead(another):
    with (
        pytest.raises(ConfigError, match=r"runs on this host .*ray_address: auto"),
        weight_socket(setup(), name=NAME),
    ):
        pytest.fail("it was let in")
    another.kill()
    another.wait()
    with weight_socket(setup(), name=NAME):
        pass


@pytest.mark.parametrize(
    "apart",
    [
        {"engine": "transformers"},  # weights go through Ray
        {"ray_address": "auto"},  # the job's id is its own
        {"rollout_devices": 1},  # weights go through gloo or NCCL
    ],
)
def test_trainings_that_share_no_socket_are_not_asked(another, apart):
    with weight_socket(setup(**apart), name=NAME):
        pass
