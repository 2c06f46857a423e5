"""``zerowait cache`` as a person runs it, on real files, with others writing meanwhile."""

import asyncio
import json
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from contextlib import closing

import msgspec
import pytest

from zerowait.cache import Entry, Shard, SqliteLedger, SqliteStore
from zerowait.types import Score

VERDICT = msgspec.json.encode(Score(7.0))
DAY_S = 86_400


def entry(number, *, judge="quality", model="m", age_s=0.0, size=500, reply=None):
    reply = reply if reply is not None else b'{"n": %d, "pad": "%s"}' % (number, b"x" * size)
    return Entry(reply, VERDICT, judge, model, "fp", time.time() - age_s)


def fill(path, entries):
    async def main():
        store = SqliteStore(path)
        async with asyncio.TaskGroup() as group:
            for key, value in entries.items():
                group.create_task(store.put(key, value))
        await store.aclose()

    asyncio.run(main())


def held(path, keys):
    async def main():
        store = SqliteStore(path)
        found = {key: await store.get(key) for key in keys}
        await store.aclose()
        return found

    return asyncio.run(main())


def count(path):
    async def main():
        store = SqliteStore(path)
        entries = (await store.stats()).entries
        await store.aclose()
        return entries

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "judgements.db"


def test_stats_names_every_judge_and_model_with_their_entries(path, zerowait_process):
    fill(path, {f"a{i}": entry(i) for i in range(3)})
    fill(path, {f"b{i}": entry(i, judge="strict", model="big") for i in range(2)})
    done = zerowait_process("cache", "stats", path)
    assert done.returncode == 0, done.stderr
    assert "5 entries" in done.stdout
    assert re.search(r"quality\s+m\s+3\s", done.stdout)
    assert re.search(r"strict\s+big\s+2\s", done.stdout)


def test_stats_names_the_budgets_that_are_kept_beside_the_cache(path, zerowait):
    fill(path, {"a": entry(1)})

    async def spend():
        ledger = SqliteLedger(path.with_name("spend.db"), name="run 7", limit=10**9)
        await ledger.reserve(500_000_000)
        ledger.settle(400_000_000, 250_000_000)
        await ledger.aclose()

    asyncio.run(spend())
    assert (
        "budget run 7: $0.2500 spent, $0.1000 reserved" in zerowait("cache", "stats", path).stdout
    )


def test_a_configuration_names_its_cache(path, zerowait, tmp_path):
    fill(path, {"a": entry(0)})
    config = tmp_path / "reward.yaml"
    config.write_text("components: {a: {scorer: qa_em}}\ncache: {path: judgements.db}\n")
    assert "1 entry" in zerowait("cache", "stats", config).stdout
    config.write_text("components: {a: {scorer: qa_em}}\ncache: off\n")
    done = zerowait("cache", "stats", config)
    assert done.returncode == 2
    assert "reward.yaml:2: cache has no cache file" in done.stderr


@pytest.mark.parametrize("action", [["stats"], ["prune", "--older-than", "1d"], ["export"]])
def test_a_cache_that_is_not_there_is_an_error_and_is_not_made(path, zerowait, action):
    more = ["out.jsonl"] if action == ["export"] else []
    done = zerowait("cache", action[0], path, *action[1:], *more)
    assert done.returncode == 2
    remedy = "name its file, or the reward.yaml that names it"
    assert done.stderr == f"zerowait: there is no cache at {path}; {remedy}\n"
    assert not path.exists()


def test_a_damaged_cache_is_one_clear_line(path, zerowait_process):
    fill(path, {str(i): entry(i) for i in range(50)})
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    done = zerowait_process("cache", "stats", path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"zerowait: the cache {path} failed (")
    assert len(done.stderr.splitlines()) == 1


def test_a_place_that_cannot_be_written_to_is_one_clear_line(path, zerowait, tmp_path):
    fill(path, {"a": entry(1)})
    for out in (tmp_path / "nowhere" / "out.jsonl", tmp_path):
        done = zerowait("cache", "export", path, out)
        assert done.returncode == 2
        assert str(out.parent) in done.stderr
        assert len(done.stderr.splitlines()) == 1


def bytes_of(*files):
    return {file: file.read_bytes() for file in files}


@pytest.mark.parametrize("action", [["stats"], ["prune", "--older-than", "1d"], ["export"]])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("folder", "is a folder: name a file in it"),
        ("text.db", "see whether it is the right file"),
        ("other.db", "is the database of another program"),
        ("newer.db", "was written by a newer zerowait"),
    ],
)
def test_what_is_no_cache_of_ours_is_one_clear_line_and_stays_as_it_is(
    zerowait, tmp_path, action, wrong, says
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("no database\n")
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    fill(tmp_path / "newer.db", {"a": entry(1)})
    with closing(sqlite3.connect(tmp_path / "newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = bytes_of(*tmp_path.glob("*.db"))
    more = [tmp_path / "out.jsonl"] if action == ["export"] else []
    done = zerowait("cache", action[0], tmp_path / wrong, *action[1:], *more)
    assert done.returncode == 2
    assert str(tmp_path / wrong) in done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert bytes_of(*tmp_path.glob("*.db")) == before
    assert not (tmp_path / "out.jsonl").exists()


def test_an_export_never_takes_the_place_of_a_cache_or_its_configuration(path, zerowait, tmp_path):
    fill(path, {"a": entry(1)})
    fill(tmp_path / "other.db", {"b": entry(2)})
    config = tmp_path / "reward.yaml"
    config.write_text(f"components: {{a: {{scorer: qa_em}}}}\ncache: {{path: {path}}}\n")
    before = bytes_of(config, path, tmp_path / "other.db")
    for where, out in (
        (path, path),
        (path, tmp_path / "other.db"),
        (config, config),
        (config, path),
    ):
        done = zerowait("cache", "export", where, out)
        assert done.returncode == 2
        assert done.stderr.startswith(f"zerowait: {out}: is ")
        assert done.stderr.endswith(", which would be lost\n")
    assert bytes_of(config, path, tmp_path / "other.db") == before


def test_prune_drops_what_is_older_and_gives_the_space_back(path, zerowait):
    fill(path, {f"old{i}": entry(i, age_s=40 * DAY_S, size=5000) for i in range(400)})
    fill(path, {f"new{i}": entry(i) for i in range(10)})
    before = path.stat().st_size
    done = zerowait("cache", "prune", path, "--older-than", "30d")
    assert done.returncode == 0, done.stderr
    assert "dropped 400 entries" in done.stdout
    assert count(path) == 10
    assert path.stat().st_size < before / 10


def test_options_of_prune_narrow_one_another(path, zerowait):
    fill(path, {"1": entry(1, judge="a", age_s=9 * DAY_S), "2": entry(2, judge="a")})
    fill(
        path,
        {
            "3": entry(3, judge="b", age_s=9 * DAY_S),
            "4": entry(4, judge="a", model="z", age_s=9 * DAY_S),
        },
    )
    zerowait("cache", "prune", path, "--older-than", "8d", "--judge", "a", "--model", "m")
    assert [key for key, value in held(path, "1234").items() if value is None] == ["1"]


def test_prune_to_a_size_drops_the_oldest_only(path, zerowait):
    fill(path, {str(i): entry(i, age_s=1000 - i, size=4000) for i in range(500)})
    done = zerowait("cache", "prune", path, "--max-bytes", "1MB")
    assert done.returncode == 0, done.stderr
    assert path.stat().st_size <= 1_000_000
    left = [int(key) for key, value in held(path, map(str, range(500))).items() if value]
    assert left == list(range(left[0], 500))
    assert len(left) > 100


def test_prune_without_options_keeps_to_the_configuration(path, zerowait, tmp_path):
    fill(path, {"old": entry(1, age_s=3 * DAY_S), "new": entry(2)})
    config = tmp_path / "reward.yaml"
    config.write_text(
        "components: {a: {scorer: qa_em}}\ncache: {path: judgements.db, max_age_days: 2}\n"
    )
    assert zerowait("cache", "prune", path).returncode == 2
    assert "dropped 1 entry" in zerowait("cache", "prune", config).stdout


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--older-than", "30", "such as 30d"),
        ("--older-than", "1 month", "such as 30d"),
        ("--max-bytes", "lots", "such as 500MB"),
        ("--max-bytes", "5 I", "such as 500MB"),
    ],
)
def test_a_span_or_size_that_says_nothing_is_refused(path, zerowait, option, value, says):
    fill(path, {"a": entry(0)})
    done = zerowait("cache", "prune", path, option, value)
    assert done.returncode == 2
    assert says in done.stderr
    assert count(path) == 1


def test_what_is_exported_and_imported_is_the_same_to_the_byte(path, zerowait_process, tmp_path):
    entries = {f"k{i}": entry(i) for i in range(300)}
    entries["unicode"] = entry(0, reply='{"content": "7 von 10 schön\u2028\\n"}'.encode())
    entries["no text"] = entry(0, reply=b"\xff\xfe\x00")
    fill(path, entries)
    out, other = tmp_path / "out.jsonl", tmp_path / "other.db"
    done = zerowait_process("cache", "export", path, out)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert len(out.read_bytes().splitlines()) == 302
    assert json.loads(out.read_bytes().splitlines()[0])["verdict"]["value"] == 7
    done = zerowait_process("cache", "import", other, out)
    assert done.returncode == 0, done.stderr
    assert "302 entries imported, 0 there already" in done.stdout
    assert held(other, entries) == entries


def test_an_import_never_overwrites_a_newer_entry(path, zerowait, tmp_path):
    out = tmp_path / "out.jsonl"
    fill(path, {"both": entry(1, age_s=100), "older": entry(2)})
    zerowait("cache", "export", path, out)
    newer = {"both": entry(3, age_s=50), "older": entry(4, age_s=500)}
    fill(path, newer)
    done = zerowait("cache", "import", path, out)
    assert "1 entry imported, 1 there already" in done.stdout
    found = held(path, newer)
    assert found["both"] == newer["both"]
    assert b'"n": 2' in found["older"].reply


def test_an_entry_from_the_future_is_young_but_not_for_ever(path, zerowait, tmp_path):
    fill(path, {"k": entry(1, age_s=-1000 * DAY_S)})
    out, other = tmp_path / "out.jsonl", tmp_path / "other.db"
    zerowait("cache", "export", path, out)
    zerowait("cache", "import", other, out)
    assert held(other, ["k"])["k"].created <= time.time()


@pytest.mark.parametrize(
    "broken",
    [
        "not json",
        '{"key": "k"}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":1,"reply":"r","verdict":{"outcome":"abstain","kind":"refused"}}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":1,"reply_base64":"***","verdict":{"outcome":"score","value":1}}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":1,"verdict":{"outcome":"score","value":1}}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":1,"reply":"r","verdict":{"outcome":"score","value":NaN}}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":1,"reply":"r","verdict":{"outcome":"score","value":true}}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":-1e300,"reply":"r","verdict":{"outcome":"score","value":1}}',
        '{"key":"k","judge":"j","model":"m","fingerprint":"","created":1,"reply":"r","verdict":',
    ],
)
def test_a_line_that_is_no_verdict_is_named_and_not_imported(path, zerowait, tmp_path, broken):
    file = tmp_path / "in.jsonl"
    good = '{"key":"g","judge":"j","model":"m","fingerprint":"","created":1,"reply":"r","verdict":{"outcome":"score","value":1}}'
    file.write_text(f"{good}\n\n{broken}\n")
    done = zerowait("cache", "import", path, file)
    assert done.returncode == 2
    assert done.stderr.startswith(f"zerowait: {file}:3: is no entry of a cache")
    assert held(path, ["k"]) == {"k": None}


WRITER = textwrap.dedent(
    """
    import asyncio, sys, time
    from zerowait.cache import Entry, SqliteStore

    async def main():
        store = SqliteStore(sys.argv[1])
        number = 0
        while True:
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    value = Entry(b"r", b'{"outcome":"score","value":1.0}', "w", "m", "", time.time())
                    group.create_task(store.put(f"w{number}", value))
                    number += 1
            print(number, flush=True)
            await asyncio.sleep(0.01)

    asyncio.run(main())
    """
)


def test_everything_works_while_another_process_writes_and_nothing_of_it_is_lost(
    path, zerowait, tmp_path
):
    fill(path, {f"old{i}": entry(i, age_s=40 * DAY_S) for i in range(1000)})
    out = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        process.stdout.readline()
        assert zerowait("cache", "export", path, out).returncode == 0
        assert zerowait("cache", "prune", path, "--older-than", "30d").returncode == 0
        assert zerowait("cache", "import", path, out).returncode == 0
        assert zerowait("cache", "stats", path).returncode == 0
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        written = [int(line) for line in process.stdout.read().split()]
        process.communicate()
    connection = sqlite3.connect(path)
    kept = {key.decode() for (key,) in connection.execute("SELECT key FROM replies")}
    connection.close()
    assert {f"w{number}" for number in range(max(written))} <= kept
    assert held(path, ["old0"])["old0"] is not None  # exported, pruned, imported
    assert not list(tmp_path.glob(".*partial"))


def test_a_killed_import_leaves_a_sound_file_and_can_be_run_again(
    path, zerowait, start_zerowait, tmp_path
):
    out, other = tmp_path / "out.jsonl", tmp_path / "other.db"
    fill(path, {f"k{i}": entry(i, size=50) for i in range(6000)})
    zerowait("cache", "export", path, out)
    process = start_zerowait("cache", "import", other, out)
    while not other.exists():
        time.sleep(0.005)
    time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert zerowait("cache", "import", other, out).returncode == 0
    assert count(other) == 6000


def test_the_files_of_a_hub_of_several_shards_are_one_cache(tmp_path, zerowait):
    whole, out = tmp_path / "j.db", tmp_path / "all.jsonl"
    shards = [Shard(index, 2).file(whole) for index in range(2)]
    for number, file in enumerate([whole, *shards]):
        fill(file, {f"{number}{i}": entry(i, age_s=DAY_S) for i in range(2)})
    output = zerowait("cache", "stats", whole)
    assert [file.name in output.stdout for file in [whole, *shards]] == [True] * 3
    exported = zerowait("cache", "export", whole, out, "-q")
    assert len(out.read_text().splitlines()) == 6, exported.stderr
    dropped = zerowait("cache", "prune", whole, "--older-than", "1h", "-q")
    assert dropped.stdout.count("dropped 2 entries") == 3, dropped.stderr
