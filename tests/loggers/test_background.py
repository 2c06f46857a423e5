"""A logger that fails or hangs is told once, and nothing waits for it."""

import threading

import pytest

from zerowait.errors import ConfigError
from zerowait.loggers import BackgroundLogger

MINUTE_S = 60.0


class Notes:
    """A logger that keeps what it is given."""

    def __init__(self, *, opens=None, logs=None):
        self._opens, self._logs = opens, logs
        self.logged, self.closed = [], threading.Event()

    def prepare(self):
        pass

    def open(self):
        if self._opens is not None:
            self._opens()

    def log(self, metrics, step):
        if self._logs is not None:
            self._logs()
        self.logged.append((step, metrics))

    def close(self):
        self.closed.set()


def failing(error):
    def fail():
        raise error

    return fail


def ended(background):
    background.join(MINUTE_S)
    return not background.is_running


def test_what_waits_is_written_before_it_ends():
    notes = Notes()
    background = BackgroundLogger("notes", notes)
    background.start()
    for step in range(100):
        background.submit(lambda step=step: notes.log({"reward/mean": 0.5}, step))
    background.end()
    assert ended(background)
    assert [step for step, _ in notes.logged] == list(range(100))
    assert notes.closed.is_set()


def test_one_that_cannot_be_opened_is_told_once_without_its_key(caplog, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted-key-0123456789")
    notes = Notes(opens=failing(OSError("no such account: planted-key-0123456789\nand more")))
    background = BackgroundLogger("wandb", notes)
    background.start()
    assert ended(background)
    background.submit(lambda: notes.log({}, 1))
    assert len(background._queue) == 0  # nor is what comes kept for a thread that has ended
    background.end()
    (told,) = caplog.messages
    assert told.startswith("log_to wandb: OSError: no such account: *** (rewards go on")
    assert notes.logged == []


def test_one_that_fails_later_is_told_once_and_tried_again(caplog):
    errors = [OSError("the network is away"), OSError("still")]
    notes = Notes(logs=lambda: failing(errors.pop(0))() if errors else None)
    background = BackgroundLogger("mlflow", notes)
    background.start()
    for step in range(4):
        background.submit(lambda step=step: notes.log({}, step))
    background.end()
    assert ended(background)
    assert [step for step, _ in notes.logged] == [2, 3]
    assert len(caplog.messages) == 1


def test_one_that_hangs_holds_nobody_up_and_is_given_up(caplog):
    hangs, goes_on = threading.Event(), threading.Event()
    notes = Notes(logs=lambda: (hangs.set(), goes_on.wait(MINUTE_S)))
    background = BackgroundLogger("trackio", notes)
    background.start()
    background.submit(lambda: notes.log({}, 1))
    assert hangs.wait(MINUTE_S)
    for step in range(30_000):
        background.submit(lambda step=step: notes.log({}, step))
    background.end()
    assert background.is_running
    background.give_up()
    goes_on.set()
    assert ended(background)
    (told,) = caplog.messages
    assert "20000 entries wait for it" in told
    assert len(notes.logged) == 1


def test_one_that_has_not_ended_in_time_is_told(caplog):
    written, goes_on = threading.Event(), threading.Event()
    background = BackgroundLogger("trackio", Notes(opens=lambda: goes_on.wait(MINUTE_S)))
    background.start()
    background.submit(written.set)
    background.end()
    background.give_up()
    goes_on.set()
    assert ended(background)
    (told,) = caplog.messages
    assert "it did not end in time: its last metrics may be missing" in told
    assert not written.is_set()


def test_wrong_settings_are_an_error_of_the_thread_that_opens_it():
    notes = Notes()
    notes.prepare = failing(ConfigError("the folder cannot be made"))
    background = BackgroundLogger("tensorboard", notes)
    with pytest.raises(ConfigError, match="cannot be made"):
        background.start()
    assert not background.is_running
