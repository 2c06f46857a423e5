"""An index is built anew under those who search it: each has one whole version, old or new."""

import json
import threading

import pytest

from zerowait.errors import ConfigError, DataError
from zerowait.search import index as index_module
from zerowait.search.corpus import Corpus
from zerowait.search.index import build_index, open_index
from zerowait.search.reloadable_index import ReloadableIndex
from zerowait.search.versions import next_version


def write(corpus, *texts):
    draft = corpus.with_suffix(".draft")
    lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(texts)]
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(corpus)
    return corpus


def found(index, query):
    return [passage.contents for passage in index.find([query], 5)[0]]


MANY = [f"Lima number{n} Peru" for n in range(2000)]


def test_an_open_index_goes_on_while_another_takes_its_place(tmp_path):
    corpus = write(tmp_path / "c.jsonl", *MANY)
    build_index(corpus, tmp_path / "index")
    with open_index(tmp_path / "index") as old:
        write(corpus, "Oslo")
        build_index(corpus, tmp_path / "index")
        with open_index(tmp_path / "index") as new:
            assert found(new, "Oslo") == ["Oslo"]
        # every file was mapped and not yet read: in the place of another it would end the process
        assert found(old, "number1999") == [MANY[1999]]
    left = [path.name for path in (tmp_path / "index").iterdir() if path.is_dir()]
    assert left == ["version-2"]


def test_a_manifest_that_is_read_while_it_changes_is_the_whole_old_one(tmp_path):
    corpus = write(tmp_path / "c.jsonl", "Lima")
    build_index(corpus, tmp_path / "index")
    with (tmp_path / "index" / "index.json").open("rb") as reading:
        build_index(write(corpus, "Oslo", "Bergen"), tmp_path / "index")
        assert json.load(reading)["documents"] == 1


def test_a_server_reloads_the_index_at_sighup_and_keeps_the_old_one_without_a_new_one(tmp_path):
    corpus = write(tmp_path / "c.jsonl", "Lima")
    build_index(corpus, tmp_path / "index")
    serving = ReloadableIndex(tmp_path / "index")
    write(corpus, "Oslo", "Bergen")
    build_index(corpus, tmp_path / "index")
    assert (found(serving, "Lima"), len(serving)) == (["Lima"], 1)
    serving.reload()
    assert (found(serving, "Oslo"), len(serving)) == (["Oslo"], 2)
    (tmp_path / "index" / "index.json").unlink()
    with pytest.raises(DataError, match="holds no index"):
        serving.reload()
    assert found(serving, "Bergen") == ["Bergen"]
    serving.close()


def test_a_search_under_way_is_not_disturbed_by_a_renewal(tmp_path):
    build_index(write(tmp_path / "c.jsonl", "Lima"), tmp_path / "index")
    serving = ReloadableIndex(tmp_path / "index")
    came, may_go_on, answers = threading.Event(), threading.Event(), []

    class Slow(list):
        def __iter__(self):
            came.set()
            assert may_go_on.wait(60)
            return super().__iter__()

    searching = threading.Thread(target=lambda: answers.extend(serving.find(Slow(["Lima"]), 1)))
    searching.start()
    assert came.wait(60)
    renewing = threading.Thread(target=serving.reload)
    renewing.start()
    may_go_on.set()
    searching.join(60)
    renewing.join(60)
    assert [p.contents for p in answers[0]] == ["Lima"]
    serving.close()


def test_a_build_that_fails_leaves_the_index_that_there_was(tmp_path):
    corpus = write(tmp_path / "c.jsonl", "Lima")
    build_index(corpus, tmp_path / "index")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        build_index(broken, tmp_path / "index")
    with open_index(tmp_path / "index") as index:
        assert found(index, "Lima") == ["Lima"]
    assert [p.name for p in (tmp_path / "index").iterdir() if p.is_dir()] == ["version-1"]


def test_two_builds_of_one_folder_at_once_are_refused(tmp_path):
    corpus = write(tmp_path / "c.jsonl", "Lima")
    with next_version(tmp_path / "index"), pytest.raises(ConfigError, match="another build"):
        build_index(corpus, tmp_path / "index")


def test_what_a_killed_build_left_behind_is_removed_by_the_next(tmp_path):
    corpus = write(tmp_path / "c.jsonl", "Lima")
    (tmp_path / "index" / "version-7").mkdir(parents=True)
    (tmp_path / "index" / "notes").mkdir()
    build_index(corpus, tmp_path / "index")
    left = {path.name for path in (tmp_path / "index").iterdir() if path.is_dir()}
    assert left == {"version-8", "notes"}


def test_an_index_that_is_replaced_while_it_is_opened_is_opened_as_it_is_then(
    tmp_path, monkeypatch
):
    corpus = write(tmp_path / "c.jsonl", "Lima")
    build_index(corpus, tmp_path / "index")
    opened = index_module.open_bm25

    def replaced_first(files):
        monkeypatch.setattr(index_module, "open_bm25", opened)
        build_index(write(corpus, "Bern"), tmp_path / "index")
        return opened(files)

    monkeypatch.setattr(index_module, "open_bm25", replaced_first)
    with open_index(tmp_path / "index") as index:
        assert found(index, "Bern") == ["Bern"]


def test_a_file_of_the_index_that_is_gone_is_named(tmp_path):
    build_index(write(tmp_path / "c.jsonl", "Lima"), tmp_path / "index")
    (tmp_path / "index" / "version-1" / "offsets.npy").unlink()
    with pytest.raises(DataError, match=r"lacks .*offsets\.npy; build it again"):
        open_index(tmp_path / "index")


def test_an_index_of_another_version_is_refused(tmp_path):
    build_index(write(tmp_path / "c.jsonl", "Lima"), tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text('{"kind": "bm25", "version": 1}')
    with pytest.raises(DataError, match="another version of zerowait; build it again"):
        open_index(tmp_path / "index")


def test_a_corpus_that_is_cut_short_under_a_server_is_an_error_and_not_its_end(tmp_path):
    """Whoever reads a mapped file behind its new end is killed by the system."""
    corpus = write(tmp_path / "c.jsonl", *MANY)
    build_index(corpus, tmp_path / "index")
    with open_index(tmp_path / "index") as index:
        with corpus.open("r+b") as file:
            file.truncate(100)
        with pytest.raises(DataError, match="document 2000: the file was truncated later"):
            index.find(["number1999"], 1)


def test_documents_are_the_lines_that_are_not_blank(tmp_path):
    (tmp_path / "c.jsonl").write_text(
        '\n {"contents": "a"}\n\n\r\n{"contents": "b"} \n \n{"contents": "c"}'
    )
    with Corpus(tmp_path / "c.jsonl") as corpus:
        assert [(p.contents, p.id) for p in corpus] == [("a", "0"), ("b", "1"), ("c", "2")]
        assert corpus[1].contents == "b"
