"""Which letter a text decides on, and which texts decide on none."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers.choice import chosen_letter
from zerowait.scorers.multiple_choice import multiple_choice
from zerowait.types import FailureKind, Sample

DECIDED = [
    ("The answer is (B).", "B"),
    ("**B**", "B"),
    ("B) because Rome is old", "B"),
    ("Option B", "B"),
    ("option b.", "B"),
    ("\uff22", "B"),
    ("答案\uff1a\uff08\uff22\uff09", "B"),
    ("the answer is b", "B"),
    ("The answer is a.", "A"),
    ("The answer is A because it is", "A"),
    ("Answer: A", "A"),
    ("A) because", "A"),
    ("A. Paris", "A"),
    ("**Answer:** C", "C"),
    ("**Answer: C**", "C"),
    ("The answer is **(C)**", "C"),
    ("### Final Answer\n\nC", "C"),
    ("Reasoning.\n\n**D**", "D"),
    ("The correct option is D", "D"),
    ("I choose option C.", "C"),
    ("I'd go with b.", "B"),
    ("Option C is correct.", "C"),
    ("B is the correct answer", "B"),
    ("The answer is (B) because (A) and (C) are wrong.", "B"),
    ("The answer is B, not A.", "B"),
    ("The answer is C. The answer is not B.", "C"),
    ("The answer is B, a city in France", "B"),
    ("The answer is B and I am sure", "B"),
    ("The answer to the question is D.", "D"),
    ("所以选B", "B"),
    ("正确答案是 C。", "C"),
    (r"$\boxed{\text{B}}$", "B"),
    (r"\boxed{B. Paris}", "B"),
    ("Answer: B\n\nA) Rome - wrong\nB) Paris - right\nC) no", "B"),
    ("The answer is: B) Paris", "B"),
    ("The answer is 'B'", "B"),
    ("the answer must be e", "E"),
    ("<answer>b</answer>", "B"),
    ("<answer>Option B</answer>", "B"),
    ("<answer>the answer is B</answer>", "B"),
    ("ANSWER: B", "B"),
    ("B: Paris", "B"),
    ("(B) Paris", "B"),
    ("B, because", "B"),
    ("Answer - B", "B"),
    ("The answer is B. Paris is the capital, and A is wrong.", "B"),
    ("A\n\nRome is the capital.", "A"),
    ("A is correct", "A"),
    ("So, B is correct.", "B"),
    ("Options: A) Paris B) Rome. The answer is B", "B"),
    ("The answer is A or B? It is clear: the answer is B", "B"),
    ("A", "A"),
    ("a", "A"),
    ("**A**", "A"),
    ("`B`", "B"),
    ("The answer is A, because", "A"),
    ("The answer is A: Paris", "A"),
    ("The best answer is (B)", "B"),
    ("My answer: [B]", "B"),
    ("B", "B"),
    ("(b)", "B"),
    ("<answer>(B) Paris</answer>", "B"),
    ("<answer>B Paris</answer>", "B"),
    ("The answer is A. <answer>B</answer>", "B"),
    (r"so \boxed{C}", "C"),
    (r"so \boxed{\text{(D)}}", "D"),
    ("First the answer is A. Then the answer is (C).", "C"),
    ("The answer is B because A is wrong", "B"),
]
UNDECIDED = [
    "A dog",
    "I think so",
    "A) Paris\nB) Rome\nC) Berlin",
    "A) Paris B) Rome",
    "A. Paris. B. Rome",
    "The answer is A dog",
    "The answer is a dog",
    "The answer is not B",
    "Answer: not B",
    "The answer isn't B",
    "The answer is A or B",
    "The answer is (A) and (B)",
    "The answer is A, B",
    "Answer: A/B",
    "B or C",
    "Option B is wrong",
    "If B is correct then",
    "B is not correct",
    "The answer is C++",
    "The answer is U.S.",
    "Answer: A) Paris B) Rome C) Berlin",
    "Answer:\nA) Paris\nB) Rome",
    "the answer is i.e. this",
    "The answer is A's",
    "The answer is either B or C",
    "Neither A nor B is correct",
    "A\nB\nC\nD",
    "不选B",
    "<answer>A dog</answer>",
    "<answer>A or B</answer>",
    "<answer>A) x B) y</answer>",
    "",
    "The answer is AB",
    "The answer is B C",
    "I cannot answer",
    "An answer",
    "Both B and C",
    "<answer>B, C</answer>",
    "<answer>not B</answer>",
    "The answer is I think unclear",
    "B vs C",
    r"\boxed{A, B}",
    r"\boxed{AB}",
    "Which is it: A, B or C?",
    "We must select a method",
    "I pick a winner",
    "Select a letter: A, B, C, D",
    "answer is not clear",
    "The answer is Dog",
]


@pytest.mark.parametrize(("response", "letter"), DECIDED)
def test_the_chosen_letter_is_read(response, letter):
    assert chosen_letter(response) == letter


@pytest.mark.parametrize("response", UNDECIDED)
def test_a_text_that_leaves_the_choice_open_chooses_nothing(response):
    assert chosen_letter(response) is None
    assert multiple_choice(Sample("", response, "B"), format_score=0.2).value == 0.0


STYLES = ["{}", "({})", "**{}**", "[{}]", "{}.", "**({})**", "`{}`", "option {}", "{}) Paris"]
FRAMES = [
    "The answer is {}",
    "Answer: {}",
    "I thought about it.\n\nThe correct option is {}\n",
    "Is it (E)? The answer is E. No, the answer is: {}",
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
]


@given(
    st.sampled_from("ABCDGHIJ"),
    st.sampled_from(STYLES),
    st.sampled_from(FRAMES),
    st.sampled_from(["as it is", "small", "full width"]),
)
def test_a_choice_is_read_in_every_style_and_place(letter, style, frame, written):
    spelt = {"small": letter.lower(), "full width": chr(ord(letter) + 0xFEE0)}.get(written, letter)
    assert chosen_letter(frame.format(style.format(spelt))) == letter


@given(st.permutations("ABCD"), st.sampled_from([" or ", ", ", " and ", "/", " & "]))
def test_two_letters_are_no_choice(letters, between):
    for frame in FRAMES:
        assert chosen_letter(frame.format(between.join(letters[:2]))) is None


@given(st.lists(st.text(string.ascii_lowercase, min_size=2, max_size=8), max_size=12))
def test_words_are_no_choice(words):
    assert chosen_letter(" ".join(words)) is None


def test_a_choice_is_compared_with_the_gold_letter():
    assert multiple_choice(Sample("", "Answer: B", "(b)")).value == 1
    assert multiple_choice(Sample("", "Answer: C", "B"), format_score=0.2).value == 0.2
    assert multiple_choice(Sample("", "no idea", "B"), format_score=0.2).value == 0


@pytest.mark.parametrize("gold", [None, "", "Paris", 1, ["A"]])
def test_a_gold_that_is_no_letter_is_an_abstention(gold):
    assert multiple_choice(Sample("", "A", gold)).kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    "text", ["\\boxed{" + "\n" * 200_000, "\\boxed{" * 30_000, "answer to " * 30_000, "(" * 200_000]
)
def test_no_filling_of_a_policy_costs_more_than_its_length(text):
    """This rule runs beside the others: time that grows with the square would stop them all."""
    assert multiple_choice(Sample("", text, "B")).value == 0.0


def test_spaces_inside_of_a_box_are_no_letters():
    assert multiple_choice(Sample("", "\\boxed{ \\text{ (B) } }", "B")).value == 1.0
