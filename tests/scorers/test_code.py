"""The pure half of the scorer `code`: programs in responses, tests in rows, comparisons."""

import base64
import json
import pickle
import time
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait import Abstain, ConfigError, Sample
from zerowait.scorers import check_options, rule_for
from zerowait.scorers.code.comparison import plain, same_output, same_value
from zerowait.scorers.code.response import program_in
from zerowait.scorers.code.row_tests import AssertTests, CallTests, StdinTests, read_tests

PAIRS = StdinTests([("1\n", "2\n"), ("3\n", "4\n")])
INPUTS = {"inputs": ["1\n", "3\n"], "outputs": ["2\n", "4\n"]}
CALLS = CallTests("add", [[1, [2]], [3, [4]]], [[[1, 2]], [[3, 4]]])


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```\nthen\n```py\nb\n```", "b\n"),
        ("```python\na\n```\nprints\n```\n1\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```python\na\n```\n```json\n{}\n```", "a\n"),
        ("```json\n{}\n```", ""),
        ("~~~~Python3\n```\n~~~~", "```\n"),
        ("```{.python}\na\n```", "a\n"),
        ("```python\ncut off", "cut off"),
        ("Inline ```a``` is no block\n```python\nb\n```", "b\n"),
        ("a = 1", "a = 1"),
        (" \n", ""),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```\n", "if a:\n    b\n"),
        ("- ```python\n  a\n  ```\nprints\n```\n1\n```", "a\n"),
        ("- x\n\t```py\n\n\ta\n\t```", "\na\n"),
        (
            '```python\n"""\n    ```\n    x\n    ```\n"""\n```',
            '"""\n    ```\n    x\n    ```\n"""\n',
        ),
        ("```python\na\n    ```\nprints\n```json\n1\n```", "a\n"),
        ("```python\na```\nprints\n```\n1\n```", "a"),
        ("Here: ```python\na\n```", "a\n"),
        ("```python\r\na\r\n```\r\n", "a\n"),
        ("```python:main.py\na\n```", "a\n"),
        ("```ipython3\na\n```", "a\n"),
        ("```python\na\n```\n```python\n```", "a\n"),
        ("```c\nb\n```", ""),
    ],
)
def test_the_program_is_the_last_block_in_its_language(text, program):
    assert program_in(text) == program


def test_a_long_response_of_fences_is_read_in_a_moment():
    began_s = time.process_time()
    for piece in (
        "```python\n    ```\n",
        "```python\nx```\n",
        "```\nx\n```\n",
        "```py ",
        "- ``` \n",
    ):
        program_in(piece * 20_000)
    assert time.process_time() - began_s < 20  # 0.3 s; minutes, if it grew with the square


def test_another_language_has_its_own_names():
    assert program_in("```c++\nint a;\n```\n```python\nb\n```", "cpp") == "int a;\n"


@given(st.text(alphabet="`~ \npythoncj+", max_size=60))
def test_any_text_has_a_program_or_none(text):
    assert isinstance(program_in(text), str)


PICKLED = base64.b64encode(
    zlib.compress(
        pickle.dumps(json.dumps([{"input": "3\n", "output": "4\n", "testtype": "stdin"}]))
    )
).decode()


@pytest.mark.parametrize(
    ("ground_truth", "extra"),
    [
        (INPUTS, {}),
        (json.dumps(INPUTS), {}),
        (json.dumps(json.dumps(INPUTS)), {}),
        ({**INPUTS, "fn_name": None}, {}),
        ({name: np.array(values) for name, values in INPUTS.items()}, {}),
        ({name: pa.scalar(values) for name, values in INPUTS.items()}, {}),
        ([{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}], {}),
        (np.array([{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}]), {}),
        ([{"input": "1\n", "output": "2\n", "type": "stdin_stdout"}, {"input": "3\n", "output": "4\n", "type": "stdin_stdout"}], {}),
        (None, {"input_output": json.dumps(INPUTS)}),
        (None, {"public_tests": {"input": ["1\n"], "output": ["2\n"]}, "private_tests": {"input": ["3\n"], "output": ["4\n"]}, "generated_tests": {"input": [], "output": []}}),
        (None, {"public_test_cases": json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}]), "private_test_cases": PICKLED, "metadata": "{}"}),
        (None, {"official_tests": [{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}]}),
    ],
)  # fmt: skip
def test_inputs_and_outputs_are_read_in_every_public_form(ground_truth, extra):
    assert read_tests(Sample("", "", ground_truth, extra=extra)) == PAIRS


@pytest.mark.parametrize(
    "ground_truth",
    [
        {"fn_name": "add", "inputs": ["1\n[2]", "3\n[4]"], "outputs": ["[1, 2]", "[3, 4]"]},
        {"fn_name": "Solution.add", "inputs": [[1, [2]], [3, [4]]], "outputs": [[1, 2], [3, 4]]},
        [{"input": "1\n[2]", "output": "[1, 2]", "testtype": "functional", "metadata": {"func_name": "add"}}, {"input": "3\n[4]", "output": "[3, 4]", "testtype": "functional", "metadata": {"func_name": "add"}}],
        [{"input": [1, [2]], "output": [1, 2], "type": "function_call", "fn_name": "add"}, {"input": [3, [4]], "output": [3, 4], "type": "function_call", "fn_name": "add"}],
    ],
)  # fmt: skip
def test_calls_are_read_in_every_public_form(ground_truth):
    assert read_tests(Sample("", "", ground_truth)) == CALLS


def test_a_result_in_a_list_of_its_own_may_be_the_list_or_its_item():
    tests = read_tests(Sample("", "", {"fn_name": "f", "inputs": [[1]], "outputs": [[[2]]]}))
    assert tests == CallTests("f", [[1]], [[[[2]], [2]]])


def test_the_text_of_json_is_its_value_and_not_an_item_in_a_list_of_its_own():
    row = [{"input": "[2]", "output": "[1]", "testtype": "functional"}]
    found = read_tests(Sample("", "", row, extra={"func_name": "f"}))
    assert found == CallTests("f", [[[2]]], [[[1]]])


def test_texts_of_which_one_is_no_json_are_the_results_themselves():
    row = {"fn_name": "f", "inputs": [["abc"], ["12"]], "outputs": ["abc", "12"]}
    assert read_tests(Sample("", "", row)) == CallTests("f", [["abc"], ["12"]], [["abc"], ["12"]])


@pytest.mark.parametrize("column", ["test_list", "assert_case"])
def test_asserts_may_be_one_text(column):
    row = {column: "assert f(1) == 2\nassert f(2) == 3"}
    tests = AssertTests(["assert f(1) == 2", "assert f(2) == 3"], "\n")
    assert _stripped(read_tests(Sample("", "", row))) == _stripped(tests)
    assert _stripped(read_tests(Sample("", "", None, extra=row))) == _stripped(tests)


def _stripped(tests):
    return tests._replace(setup=tests.setup.strip())


def test_a_test_of_what_is_printed_abstains():
    test = (
        "with contextlib.redirect_stdout(io.StringIO()) as said:\n    f()\nassert said.getvalue()"
    )
    found = read_tests(Sample("", "", test))
    assert isinstance(found, Abstain)
    assert "redirect_stdout" in found.detail


def test_a_test_that_takes_what_pytest_gives_abstains():
    test = "@pytest.mark.parametrize('a', [1])\ndef test_f(a):\n    assert f(a) == 2\n"
    found = read_tests(Sample("", "", None, extra={"test": test}))
    assert isinstance(found, Abstain)
    assert "test_f takes a from pytest" in found.detail


@pytest.mark.parametrize(
    ("column", "value"),
    [("generated_checker", "print(1)"), ("interaction_format", "ask"), ("input_mode", "file")],
)
def test_a_row_whose_programs_are_not_told_by_their_output_abstains(column, value):
    tests = [{"input": "1", "output": "2"}]
    row = {"official_tests": tests, "generated_checker": None, "input_mode": "stdio", column: value}
    found = read_tests(Sample("", "", None, extra=row))
    assert isinstance(found, Abstain)
    assert column in found.detail
    plain = row | {column: None}
    assert read_tests(Sample("", "", None, extra=plain)) == StdinTests([("1", "2")])


@pytest.mark.parametrize(("said", "expected"), [("0101", "101"), ("007", "7"), ("\u0663", "3")])
def test_a_code_of_digits_is_no_number(said, expected):
    assert not same_output(said, expected, compare="lines", tolerance=1e-6)


def test_whole_numbers_that_json_made_keys_are_numbers_again():
    tests = read_tests(Sample("", "", {"fn_name": "f", "inputs": ['{"1": 2}'], "outputs": ["3"]}))
    assert tests.calls == [[{1: 2}]]


CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"


@pytest.mark.parametrize(
    ("ground_truth", "extra", "tests"),
    [
        (["assert f(1) == 2"], {}, AssertTests(["assert f(1) == 2"])),
        ('["assert f(1) == 2"]', {}, AssertTests(["assert f(1) == 2"])),
        (None, {"test_list": ["assert f(1) == 2"], "test_setup_code": "import math"}, AssertTests(["assert f(1) == 2"], "import math")),
        ({"assert_case": ["assert f(1) == 2"]}, {}, AssertTests(["assert f(1) == 2"])),
        ("    return x", {"test": CHECK, "entry_point": "f"}, AssertTests(["check(candidate)"], "\n" + CHECK, "f")),
        ("import math\nassert f(1) == 2\nassert f(2) == 3", {}, AssertTests(["assert f(1) == 2", "assert f(2) == 3"], "\nimport math")),
        ("a = f(1)\nassert a == 2", {}, AssertTests(["a = f(1)\nassert a == 2"])),
        ("def test_f():\n    assert f(1) == 2", {}, AssertTests(["test_f()"], "\ndef test_f():\n    assert f(1) == 2")),
        (["assert sum(1, 2) == 3"], {}, AssertTests(["assert sum(1, 2) == 3"], shadows=("sum",))),
    ],
)  # fmt: skip
def test_asserts_are_read_in_every_public_form(ground_truth, extra, tests):
    assert read_tests(Sample("", "", ground_truth, extra=extra)) == tests


class Bomb:
    def __reduce__(self):
        return print, ("opened",)


@pytest.mark.parametrize(
    ("ground_truth", "extra", "why"),
    [
        (None, {}, "none of the known forms"),
        ({"inputs": [], "outputs": []}, {}, "there is none"),
        ({"inputs": ["1"], "outputs": []}, {}, "there are 1 inputs and 0 outputs"),
        ({"inputs": "[", "outputs": "]", "fn_name": "f"}, {}, "JSON"),
        ([{"output": "1"}], {}, "a test has no 'input'"),
        ([{"input": "1", "output": "1", "testtype": "functional"}], {}, "fn_name"),
        ("42", {}, "none of the known forms"),
        ("def (", {}, "SyntaxError"),
        (None, {"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(Bomb()))).decode(), "public_test_cases": "[]"}, "print, which is not read"),
    ],
)  # fmt: skip
def test_tests_that_cannot_be_read_abstain_and_say_why(ground_truth, extra, why, capsys):
    found = read_tests(Sample("", "", ground_truth, extra=extra))
    assert isinstance(found, Abstain)
    assert why in found.detail
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("said", "expected", "lines", "tokens"),
    [
        ("1\n", "1", True, True),
        ("1\r\n2", "1\n2\n\n", True, True),
        (" 1   2 ", "1 2", True, True),
        ("1\n2", "1 2", False, True),
        ("0.3333333", "0.33333333", True, True),
        ("0.334", "0.333", False, False),
        ("3", "3.0", True, True),
        ("3.0", "3", True, True),
        ("3.0000001", "3", False, False),
        ("12345678901234567890", "12345678901234567891", False, False),
        ("1e400", "2e400", False, False),
        ("nan", "1.0", False, False),
        ("inf", "1e999", False, False),
        ("yes", "YES", False, False),
        ("1_0", "10.0", False, False),
        ("", "", True, True),
        ("1", "", False, False),
    ],
)
def test_outputs_are_compared_as_benchmarks_do(said, expected, lines, tokens):
    assert same_output(said, expected, compare="lines", tolerance=1e-6) is lines
    assert same_output(said, expected, compare="tokens", tolerance=1e-6) is tokens


def test_an_exact_output_is_the_text():
    assert same_output("a \n", "a ", compare="exact", tolerance=0)
    assert not same_output("a", "a ", compare="exact", tolerance=0)


@given(st.text(max_size=40), st.text(max_size=40))
def test_an_output_is_the_same_as_itself_and_comparisons_are_ordered_by_strictness(one, other):
    assert same_output(one, one, compare="lines", tolerance=0)
    exact, lines, tokens = (
        same_output(one, other, compare=each, tolerance=0) for each in ("exact", "lines", "tokens")
    )
    assert tokens or not lines
    assert lines or not exact


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        ((1, 2), [1, 2], True),
        ([1, [2.0000000001]], [1, [2]], True),
        ({1: 2}, {"1": 2}, True),
        ("1", 1, False),
        (None, [], False),
        ([], None, False),
        (10**400, 1.0, False),
        ([1], [1, 1], False),
        (plain({"s": [1]}), [1], False),
        (plain({"r": 0}), None, False),
    ],
)
def test_values_are_compared_as_json(said, expected, same):
    assert same_value(said, expected, tolerance=1e-6) is same


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"credit": "some"}, "credit is 'some'"),
        ({"time_limit_s": 0}, "time_limit_s must be above 0"),
        ({"language": "cpp"}, "sandbox: {url: ...}"),
        ({"python": "/no/such/python"}, "there is no such program"),
        ({"sandbox": {"url": "localhost:8080"}}, "url"),
        ({"sandbox": {"uri": "http://localhost:8080"}}, "uri"),
        ({"timelimit": 3}, "did you mean 'time_limit_s'"),
    ],
)
def test_wrong_options_are_named_before_work_starts(options, problem):
    with pytest.raises(ConfigError) as error:
        check_options("code", options)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    "source", ["codecontests", "apps", "codeforces", "taco", "livecodebench/code_generation_lite", "mbpp", "humaneval"]
)  # fmt: skip
def test_by_data_source_knows_the_benchmarks_of_code(source):
    assert rule_for(source).scorer == "code"
