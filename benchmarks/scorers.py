"""Every scorer: cases in its golden set, property tests, and microseconds per call.

python benchmarks/scorers.py [--calls 400]

Cases and property tests are counted by asking pytest for its list. The times are CPU time of calls
in this process, one typical right answer for each scorer, the quickest of five rounds of `--calls`:
other work on the machine disturbs that one least. `math` and `json_schema` are asked for different
answers each time, so that nothing they remember helps them.
"""

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from zerowait.cli.tables import show
from zerowait.scorers import resolve
from zerowait.types import Sample

_ROUNDS = 5
_TESTS = Path(__file__).parents[1] / "tests"
_CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
_PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
_THOUGHT = "The capital of France has been Paris for centuries. " * 20

# name: (the n-th sample, options)
CALLS: dict[str, tuple[Callable[[int], Sample], dict[str, object]]] = {
    "by_data_source": (lambda _: _sample("#### 72", "72"), {}),
    "column": (lambda _: Sample("", "", extra={"rm": 0.5}), {"key": "rm"}),
    "contains": (lambda _: _sample("It is Paris.", "Paris"), {}),
    "format": (lambda _: Sample("", f"<think>{_THOUGHT}</think><answer>b</answer>"), {}),
    "gsm8k": (lambda _: _sample("#### 72", "72"), {}),
    "json_schema": (lambda n: _sample(f'{{"age": {n}}}', None), {"schema": _PERSON}),
    "math": (lambda n: _sample(rf"\boxed{{\frac{{{n}}}{{7}}}}", f"{n}/7"), {}),
    "math, expressions": (lambda n: _sample(rf"\boxed{{(x+{n})^2}}", f"(x+{n})(x+{n})"), {}),
    "multiple_choice": (lambda _: _sample("The answer is (B).", "B"), {}),
    "qa_em": (lambda _: _sample("<answer>the Paris</answer>", ["Paris"]), {}),
    "qa_em_format": (
        lambda _: Sample("", f"<think>{_THOUGHT}</think><answer>Paris</answer>", ["Paris"]),
        {},
    ),
    "qa_f1": (lambda _: _sample("<answer>Paris, France</answer>", ["Paris"]), {}),
    "qa_subem": (lambda _: _sample("<answer>It is Paris.</answer>", ["Paris"]), {}),
    "regex": (lambda _: _sample("Answer: B", "B"), {"pattern": r"Answer: (\w)"}),
    "toolcall": (lambda _: _sample(_CALL, [{"name": "f", "arguments": {"x": 1}}]), {}),
}

_ANY = "test_no_text_makes_a_scorer_raise_or_leave_the_range"
# the tests with golden cases, and the property tests, of each scorer
TESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "by_data_source": (
        (
            "test_a_data_source_selects_its_scorer",
            "test_the_user_s_table_extends_and_overrides_the_built_in_rules",
        ),
        (),
    ),
    "column": (("test_it_takes_the_number_that_the_row_holds_and_nothing_else",), ()),
    "contains": (
        ("test_containment_of_whole_words",),
        ("test_a_text_contains_its_own_words",),
    ),
    "format": (
        ("test_the_fault_of_a_format_is_named",),
        ("test_a_well_formed_text_has_as_many_closing_tags_as_opening_ones",),
    ),
    "gsm8k": (
        (
            "test_the_strict_rule_reads_the_last_marked_number",
            "test_the_flexible_rule_reads_the_last_number",
            "test_gsm8k_reproduces_each_published_rule",
            "test_several_numbers_after_the_mark_are_none_of_them",
        ),
        (
            "test_a_number_is_read_back_however_it_was_written",
            "test_a_fraction_is_read_back_however_it_was_written",
            "test_gsm8k_agrees_with_the_installed_verl",
        ),
    ),
    "json_schema": (
        (
            "test_the_last_json_of_a_response_has_to_satisfy_the_schema",
            "test_a_text_that_is_made_to_hang_or_crash_the_check_is_scored",
            "test_a_gold_that_is_no_schema_abstains",
        ),
        (
            "test_an_object_is_found_whatever_prose_stands_around_it",
            "test_what_is_found_is_json_and_nothing_raises",
        ),
    ),
    "math": (
        (
            "test_a_boxed_answer_is_compared_by_what_it_means",
            "test_each_extraction_finds_its_answer",
            "test_prose_gives_one_answer_or_none",
            "test_a_gold_that_cannot_be_read_abstains",
            "test_all_of_an_answer_is_compared_exactly",
            "test_the_same_text_is_equal_even_where_it_cannot_be_read",
            "test_an_answer_that_is_made_to_hang_is_a_wrong_one_at_once",
        ),
        (
            "test_no_expression_without_a_value_equals_a_finite_gold",
            "test_nothing_that_a_response_writes_makes_the_rule_abstain",
            "test_a_number_equals_itself_however_it_is_written",
            "test_two_numbers_are_equal_only_when_they_are",
            "test_the_order_of_a_set_does_not_matter",
            "test_a_box_is_found_as_a_slow_reader_finds_it",
            "test_several_answers_are_not_each_of_them",
            "test_one_answer_is_found_however_it_is_framed",
        ),
    ),
    "multiple_choice": (
        (
            "test_the_chosen_letter_is_read",
            "test_a_text_that_leaves_the_choice_open_chooses_nothing",
        ),
        (
            "test_a_choice_is_read_in_every_style_and_place",
            "test_two_letters_are_no_choice",
            "test_words_are_no_choice",
        ),
    ),
    "qa_em": (
        (
            "test_exact_match_has_these_values",
            "test_the_same_answer_in_other_characters_is_the_same",
            "test_exact_match_reproduces_each_published_rule",
        ),
        (
            "test_normalisation_agrees_with_squad_s_four_steps",
            "test_the_last_answer_is_the_last_closed_pair",
            "test_no_normal_form_of_unicode_changes_an_answer",
            "test_a_match_is_contained_and_overlaps_fully",
            "test_nothing_matches_an_empty_answer_or_an_empty_gold",
            "test_exact_match_agrees_with_the_installed_verl",
        ),
    ),
    "qa_em_format": (
        ("test_answer_and_order_have_these_values",),
        ("test_a_right_order_has_every_tag_closed_and_one_answer_at_the_end",),
    ),
    "qa_f1": (
        ("test_word_overlap_has_these_values",),
        (
            "test_a_match_is_contained_and_overlaps_fully",
            "test_nothing_matches_an_empty_answer_or_an_empty_gold",
        ),
    ),
    "qa_subem": (
        ("test_containment_has_these_values", "test_containment_reproduces_the_published_rule"),
        (
            "test_containment_agrees_with_a_slow_reader_of_tokens",
            "test_a_match_is_contained_and_overlaps_fully",
            "test_nothing_matches_an_empty_answer_or_an_empty_gold",
        ),
    ),
    "regex": (
        ("test_a_pattern_is_found_or_not", "test_a_pattern_s_last_match_is_compared_with_the_gold"),
        (),
    ),
    "toolcall": (
        ("test_tool_calls_have_these_values", "test_tool_calls_reproduce_tool_n1"),
        ("test_calls_are_right_whatever_their_order_and_only_as_often_as_wanted",),
    ),
}


def main() -> int:
    """Print one row for each scorer."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=400)
    calls = options.parse_args().calls
    tests = _collected()
    rows = [["scorer", "golden cases", "property tests", "µs per call"]]
    for name, (sample, given) in CALLS.items():
        golden, properties = _counts(name.partition(",")[0], tests)
        rows.append([name, golden, properties, f"{_microseconds(name, sample, given, calls):.0f}"])
    show(rows)
    return 0


def _sample(response: str, gold: object) -> Sample:
    return Sample("", f"{_THOUGHT}\n{response}", gold, data_source="openai/gsm8k")


def _microseconds(
    name: str, sample: Callable[[int], Sample], given: dict[str, object], calls: int
) -> float:
    scorer = resolve(name.partition(",")[0])
    outcome = scorer(sample(0), **given)
    assert getattr(outcome, "value", 0) > 0, (name, outcome)  # noqa: S101 - a benchmark of right answers
    took_s = []
    for first in range(1, _ROUNDS * calls + 1, calls):
        samples = [sample(number) for number in range(first, first + calls)]
        start = time.process_time()
        for each in samples:
            scorer(each, **given)
        took_s.append(time.process_time() - start)
    return min(took_s) / calls * 1e6


def _counts(name: str, tests: Counter[str]) -> tuple[str, str]:
    golden, properties = TESTS[name]
    for test in (*golden, *properties):
        if not tests[test]:
            raise SystemExit(f"there is no test {test}")
    return str(sum(tests[test] for test in golden)), str(len(properties) + 1)  # and _ANY


def _collected() -> Counter[str]:
    """How many cases each test has."""
    command = [sys.executable, "-m", "pytest", "--collect-only"]
    paths = [str(_TESTS / "scorers"), str(_TESTS / "properties" / "test_scorer_properties.py")]
    found = subprocess.run([*command, *paths], capture_output=True, text=True, check=True)
    names = [line.partition("::")[2] for line in found.stdout.splitlines() if "::" in line]
    tests = Counter(name.partition("[")[0] for name in names)
    if tests[_ANY] != len(TESTS):
        raise SystemExit(f"{_ANY} covers {tests[_ANY]} scorers; the table has {len(TESTS)}")
    return tests


if __name__ == "__main__":
    sys.exit(main())
