"""Something is done when a module is imported, and nothing is imported for it."""

import importlib
import importlib.util
import sys

import pytest

from zerowait.verl.import_hook import on_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield "late_module"
    sys.meta_path[:] = before
    sys.modules.pop("late_module", None)


def test_it_waits_for_the_import_and_sees_the_module_complete(module):
    seen = []
    on_import(module, lambda: seen.append(sys.modules[module].value))
    assert seen == []
    assert module not in sys.modules
    importlib.import_module(module)
    assert seen == [7]


def test_what_is_imported_already_is_not_waited_for(module):
    importlib.import_module(module)
    seen = []
    on_import(module, lambda: seen.append(1))
    assert seen == [1]


def test_it_leaves_nothing_behind_and_the_module_as_it_would_have_been(module):
    before = list(sys.meta_path)
    on_import(module, lambda: None)
    loaded = importlib.import_module(module)
    assert sys.meta_path == before
    assert type(loaded.__spec__.loader).__name__ == "SourceFileLoader"
    assert importlib.reload(loaded).value == 7


def test_somebody_who_only_asks_whether_there_is_such_a_module_changes_nothing(module):
    seen = []
    on_import(module, lambda: seen.append(sys.modules[module].value))
    assert importlib.util.find_spec(module) is not None
    assert seen == []
    importlib.import_module(module)
    assert seen == [7]


def test_other_imports_are_not_touched(module):
    on_import(module, pytest.fail)
    assert importlib.import_module("json").loads("1") == 1


def test_a_module_that_does_not_exist_is_the_usual_error(module):
    on_import("no_such_module", pytest.fail)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module")
