import asyncio
import contextvars
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from zerowait.engine import Portal
from zerowait.errors import ClosedError, PortalMisuseError


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


def test_work_runs_on_a_thread_of_its_own():
    async def where():
        return threading.current_thread()

    with Portal() as portal:
        assert portal.call(where) is not threading.current_thread()


def test_many_threads_may_call_at_once():
    with Portal() as portal, ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda n: portal.call(lambda: double(n)), range(64))
        assert list(results) == [2 * n for n in range(64)]


def test_an_error_reaches_the_caller():
    async def fail():
        raise KeyError("lost")

    with Portal() as portal, pytest.raises(KeyError, match="lost"):
        portal.call(fail)


def test_a_blocking_call_from_its_own_thread_is_refused_instead_of_a_deadlock():
    with Portal() as portal:

        async def misuse():
            portal.call(lambda: double(1))

        with pytest.raises(PortalMisuseError):
            portal.call(misuse)


def test_it_works_inside_a_running_loop_and_from_many_loops_in_a_row():
    with Portal() as portal:

        async def notebook_cell(n):
            return portal.call(lambda: double(n))

        assert [asyncio.run(notebook_cell(n)) for n in range(3)] == [0, 2, 4]


def test_a_cancelled_future_cancels_its_work():
    with Portal() as portal:
        cancelled = threading.Event()

        async def wait():
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        future = portal.submit(wait)
        portal.call(lambda: double(0))
        future.cancel()
        assert cancelled.wait(60)


def test_closing_cancels_what_is_left_and_joins_the_thread():
    portal = Portal()
    future = portal.submit(asyncio.Event().wait)
    portal.close()
    with pytest.raises(CancelledError):
        future.result(60)
    assert not portal.is_open


def test_a_closed_portal_refuses_work_and_closes_again():
    portal = Portal()
    portal.close()
    portal.close()
    with pytest.raises(ClosedError):
        portal.call(lambda: double(1))


def test_it_can_be_closed_from_another_thread():
    portal = Portal()
    closer = threading.Thread(target=portal.close)
    closer.start()
    closer.join(60)
    assert not closer.is_alive()
    assert not portal.is_open


def test_context_variables_do_not_leak_into_the_caller():
    variable = contextvars.ContextVar("variable", default="outside")

    async def change():
        variable.set("inside")

    with Portal() as portal:
        portal.call(change)
    assert variable.get() == "outside"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_fork_the_child_is_told_to_open_it_again():
    with Portal() as portal:
        child = os.fork()
        if child == 0:
            try:
                portal.submit(lambda: double(1))
            except ClosedError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("name", "opened"),
    [("engine.Portal", "Portal()"), ("testing.FakeJudge", "with FakeJudge(): 0")],
)
def test_where_no_file_descriptor_is_left_opening_raises_and_does_not_hang(name, opened):
    module, _, imported = name.partition(".")
    code = f"""
import os, resource
from zerowait.{module} import {imported}
{opened.replace("Portal()", "Portal().close()")}
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), most))
try:
    {opened}
except OSError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Too many open files" in done.stdout, done.stderr
