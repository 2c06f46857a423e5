"""Which letter a text decides on, and which texts decide on none."""

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers.multiple_choice import chosen_letter, multiple_choice
from zerowait.types import FailureKind, Sample

DECIDED = [
    *(("Selected: B", "B"), ("Correct: **B**", "B"), ("So it's B.", "B"), ("Thus, it is B.", "B")),
    ("The answer is (B).", "B"),
    (r"The answer is \(\mathbf{B}\)", "B"),
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
    *("Plan B is best", "Team C is right", "Not correct: B", "Type D is the correct one"),
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

# Each decides on B.
FORMS = [
    "#### B",
    '{"answer": "B"}',
    '{"reasoning": "A is wrong", "answer": "B"}',
    '{"answer": "B", "reasoning": "A is wrong"}',
    '```json\n{"answer": "B"}\n```',
    '{"answer": "(B)"}',
    '{"answer": "B) Paris"}',
    '{"answer": "b"}',
    "{'answer': 'B'}",
    '{"choice": "B"}',
    '{"final_answer": "B"}',
    '{"Answer": "B"}',
    '{"option": "B"}',
    '{"correct_answer": "B"}',
    '{"letter": "B"}',
    '{"answer": ["B"]}',
    '{"answer": {"letter": "B"}}',
    'Reasoning first.\n{"answer": "B"}',
    "Antwort: B",
    "Die Antwort ist B.",
    "Die richtige Antwort ist (B).",
    "Richtige Antwort: B",
    "R\xe9ponse : B",
    "La r\xe9ponse est B.",
    "La bonne r\xe9ponse est la B.",
    "La bonne r\xe9ponse est (B)",
    "Respuesta: B",
    "La respuesta correcta es B.",
    "La respuesta es la opci\xf3n B.",
    "La respuesta correcta es la (B).",
    "Risposta: B",
    "La risposta corretta \xe8 B",
    "Resposta: B",
    "A resposta correta \xe9 B",
    "Antwoord: B",
    "\u041e\u0442\u0432\u0435\u0442: B",
    "\u041f\u0440\u0430\u0432\u0438\u043b\u044c\u043d\u044b\u0439 \u043e\u0442\u0432\u0435\u0442: B",
    "\u7b54\u6848\uff1aB",
    "\u7b54\u6848:B",
    "\u6b63\u786e\u7b54\u6848\uff1aB",
    "\u7b54\u6848\u662fB",
    "\u7b54\u6848\u4e3aB",
    "\u7b54\u6848\u9009B",
    "\u6545\u9009B",
    "\u6545\u9009\uff1aB",
    "\u6545\u9009 (B)",
    "\u56e0\u6b64\u9009\u62e9B\u9009\u9879",
    "\u7b54\u3048: B",
    "\u7b54\u3048\u306fB\u3067\u3059",
    "\u6b63\u89e3\uff1aB",
    "\u6b63\u89e3\u306fB\u3067\u3059",
    "\u89e3\u7b54\uff1aB",
    "\u56de\u7b54\uff1aB",
    "\u7b54\uff1aB",
    "\uc815\ub2f5: B",
    "\uc815\ub2f5\uc740 B\uc785\ub2c8\ub2e4",
    "\ub2f5: B",
    "\ub2f5\ubcc0: B",
    "Jawaban: B",
    "Jibu: B",
    "Cevap: B",
    "\u0110\xe1p \xe1n: B",
    "Odpowied\u017a: B",
    "Svar: B",
    "\u0627\u0644\u0625\u062c\u0627\u0628\u0629: B",
    "\u0627\u0644\u0625\u062c\u0627\u0628\u0629 \u0627\u0644\u0635\u062d\u064a\u062d\u0629 \u0647\u064a B",
    "\u0989\u09a4\u09cd\u09a4\u09b0: B",
    "\u0909\u0924\u094d\u0924\u0930: B",
    "\u0e04\u0e33\u0e15\u0e2d\u0e1a: B",
    "\\boxed{\\text{B}}",
    "\\boxed{\\mathrm{B}}",
    "\\boxed{\\textbf{(B)}}",
    "\\boxed{\\mathbf{B}}",
    "\\boxed{(\\text{B})}",
    "$\\boxed{\\text{(B)}\\ 42}$",
    "\\boxed{\\textbf{(B)}\\ 42}",
    "\\boxed{\\text{B. Paris}}",
    "\\boxed{\\text{Option B}}",
    "\\boxed{B) 42}",
    "\\fbox{B}",
    "\\boxed{\\boldsymbol{B}}",
    "\\boxed{\\mathbf B}",
    "\\boxed{\\rm B}",
    "**B.**",
    "**(B)**",
    "***B***",
    "__B__",
    "[B]",
    "[[B]]",
    "{B}",
    "b)",
    "B)",
    "B.",
    '"B"',
    "'B'",
    "B\n",
    "<answer>B</answer>",
    "<answer>**B**</answer>",
    "<answer>B.</answer>",
    "<answer>(b)</answer>",
    "<ANSWER>B</ANSWER>",
    "<choice>B</choice>",
    "<final_answer>B</final_answer>",
    "<option>B</option>",
    "Answer: B",
    "Answer:B",
    "answer = B",
    "Answer -> B",
    "Answer => B",
    "Answer B",
    "Answer (B)",
    "Answer: Option B",
    "Answer: the letter B",
    "Answer choice: B",
    "Answer Choice B",
    "Answer: [B]",
    "Answer: $B$",
    "Answer: \\text{B}",
    "Answer: \\boxed{B}",
    "**Answer**: B",
    "**Answer:** **B**",
    "*Answer*: (B)",
    "> Answer: B",
    "> B",
    "- Answer: B",
    "1. Answer: B",
    "### Answer: B",
    "## Answer\nB",
    "Final Answer: B",
    "FINAL ANSWER: B",
    "Final answer is B",
    "Final answer: **B**.",
    "The final answer is: $\\boxed{B}$.",
    "Therefore, the answer is B.",
    "Hence, (B).",
    "Thus, B.",
    "So B.",
    "Therefore, B is correct.",
    "\u2234 B",
    "\u2192 B",
    "=> B",
    "The correct answer is option B.",
    "The correct answer is: B",
    "Correct answer: B",
    "Correct option: B",
    "Correct choice: (B)",
    "The right choice is B.",
    "My choice is B.",
    "Choice: B",
    "Option: B",
    "The best option would be B.",
    "The answer would be (B).",
    "The answer should be B.",
    "The answer has to be B.",
    "I choose B.",
    "I'd choose B",
    "I would pick (B).",
    "I select option B.",
    "I'm going with B.",
    "I'll go with B",
    "Going with B.",
    "Select B.",
    "B is the correct answer.",
    "B is right.",
    "B is the best choice.",
    "Option B is correct.",
    "(B) is correct.",
    "Choice B is correct",
    "The correct one is B.",
    "It's B.",
    "It is B.",
    "That's B.",
    "It must be B",
    "The solution is B.",
    "Solution: B",
    "Result: B",
    "ANS: B",
    "Ans. B",
    "The answer is B (Paris).",
    "The answer is B - Paris",
    "The answer is B, Paris.",
    "The answer is B. Paris",
    "The answer is: (B) Paris",
    'The answer is "B".',
    "Answer: B. Because A is wrong.",
    "Answer: B\n\nExplanation: A and C are wrong.",
    "Explanation: A and C are wrong.\n\nAnswer: B",
    "Let's look at A) x B) y C) z.\n\nB",
    "The answer is\n\nB",
    "The answer is:\n\n(B)",
    "answer: b",
    "The answer is b.",
    "The answer is option (b).",
    "The answer is \u24d1",
    "\u24b7",
    "The answer is \uff22",
    "Only B is correct.",
    "Both A and C are wrong, so the answer is B.",
    "A is wrong. B is correct.",
    "The answer isn't A, it's B.",
    "Answer: B (not A)",
    "Answer: B, not A",
    "The correct answer is B because A, C and D are wrong.",
]
SETS = [
    "The correct answers are A and C.",
    "Answers: A, C",
    "Answer: A,C",
    "Answer: AC",
    "Answer: CA",
    "\\boxed{A, C}",
    "\\boxed{\\text{A, C}}",
    "\\boxed{A,\\ C}",
    "\\boxed{AC}",
    "\\boxed{\\text{A}, \\text{C}}",
    "\\boxed{A} and \\boxed{C}",
    "<answer>A, C</answer>",
    "<answer>AC</answer>",
    "<answer>(A) and (C)</answer>",
    '{"answer": ["A","C"]}',
    '{"answers": ["A", "C"]}',
    '{"answer": "AC"}',
    '{"answer": "A, C"}',
    "#### A, C",
    "#### AC",
    "\u7b54\u6848\uff1aAC",
    "\u7b54\u6848\uff1aA\u3001C",
    "\u7b54\u6848\uff1aA\u548cC",
    "\u6545\u9009AC",
    "\u6545\u9009\uff1aAC\u3002",
    "Antwort: A und C",
    "Les bonnes r\xe9ponses sont A et C",
    "A and C are correct.",
    "Both A and C are correct.",
    "The answer is (A) and (C).",
    "The answer is A, C",
    "The answers are A & C",
    "Answer: A; C",
    "A and C only",
    "AC",
    "A, C",
    "A C",
    "A & C",
    "a, c",
    "(a), (c)",
    "**A, C**",
    "**A** and **C**",
    "[A, C]",
    '["A", "C"]',
    "The correct options are A and C.",
    "The correct choices are (A) and (C)",
    "Reasoning here about B.\n\nA, C",
    "Reasoning here.\n\n**Answer: A, C**",
    "The answer is both A and C.",
    "Options A and C are correct.",
    "Option A and option C are correct.",
    "A) and C)",
    "The final answer is $\\boxed{A, C}$.",
]
LEFT_OPEN = [
    "La respuesta es B o C",
    "La respuesta es B y C",
    "Die Antwort ist B oder C",
    "La r\xe9ponse est B ou C",
    "La risposta \xe8 B o C",
    "\u7b54\u6848\u662fB\u6216C",
    "\u7b54\u6848\uff1aA\u3001B",
    "\u7b54\u3048\u306fB\u3067\u306f\u306a\u3044",
    "\uc815\ub2f5\uc740 B\uac00 \uc544\ub2d9\ub2c8\ub2e4",
    "Die Antwort ist nicht B",
    "La respuesta no es B",
    "La r\xe9ponse n'est pas B",
    "Die Antwort ist eine Katze",
    "La respuesta es a menudo larga",
    '{"answer": "A or B"}',
    '{"answer": "Paris"}',
    '{"answer": ["A", "B"]}',
    '{"options": ["A", "B"]}',
    "#### Paris",
    "#### A or B",
    "#### A) Paris",
    "Options: A) x\nB) y",
    "\\boxed{A} or \\boxed{B}",
    "So a dog",
    "It is a dog.",
    "It's B or C.",
    "Hence A dog",
    "<choice>A dog</choice>",
    "I select a random option",
    "Answer Bob",
    "Answer A dog",
    "Answer me",
    "The answer B is wrong",
    "Antwort A ist falsch",
    "Select all: A, B, C",
    "Going with a friend",
    "Let x = 5. So A = 3",
    "Result: A + B = 7",
    "The solution is A + B",
    "A: 5\nB: 6",
]
NO_SETS = [
    "A or C",
    "Answer: A or C",
    "The answer is A/C",
    "The answer is not A, C",
    "Neither A nor C",
    "\\boxed{A} or \\boxed{C}",
    "A\nB\nC",
    "I am not sure",
    "La respuesta es A o C",
    "Die Antwort ist A oder C",
    "ACA",
    "The answer is either A or C.",
    "If A and C are correct then D",
]


@pytest.mark.parametrize("response", FORMS)
def test_the_letter_is_read_in_the_forms_of_many_models_and_languages(response):
    assert multiple_choice(Sample("", response, "B")).value == 1.0
    assert multiple_choice(Sample("", response, ["B"])).value == 1.0
    assert multiple_choice(Sample("", response, "A")).value == 0.0


@pytest.mark.parametrize("response", LEFT_OPEN)
def test_what_names_no_letter_or_several_chooses_none_in_any_language(response):
    assert chosen_letter(response) is None


@pytest.mark.parametrize("response", SETS)
@pytest.mark.parametrize("gold", [["A", "C"], "AC"])
def test_several_letters_are_a_set(response, gold):
    assert multiple_choice(Sample("", response, gold)).value == 1.0
    assert multiple_choice(Sample("", response, "A, B"), format_score=0.2).value == 0.2
    assert multiple_choice(Sample("", response, "ACD")).value == 0.0


@pytest.mark.parametrize("response", NO_SETS)
def test_letters_between_which_it_is_left_open_are_no_set(response):
    assert multiple_choice(Sample("", response, "AC")).value == 0.0


@pytest.mark.parametrize(
    "gold",
    [
        *("AC", "CA", "A, C", "A,C", "A and C", "A & C", "(A), (C)", "A;C", "a, c", "A C", "[A, C]"),
        *(["A", "C"], ["C", "A"], ("a", "(c)"), {"A", "C"}, np.array(["A", "C"]), '["A", "C"]'),
        {"target": ["A", "C"]},
    ],
)  # fmt: skip
def test_a_gold_of_several_letters_is_read_in_every_form(gold):
    assert multiple_choice(Sample("", "Answer: A, C", gold)).value == 1.0
    assert multiple_choice(Sample("", "Answer: A", gold), format_score=0.1).value == 0.1
    assert multiple_choice(Sample("", "no idea", gold), format_score=0.1).value == 0.0


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


@pytest.mark.parametrize("gold", [None, "", "Paris", 1, [], ["Paris"], ["A", None], "A or B"])
def test_a_gold_that_is_no_letter_is_an_abstention(gold):
    assert multiple_choice(Sample("", "A", gold)).kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    "text",
    [
        *("\\boxed{" + "\n" * 200_000, "\\boxed{" * 30_000, "answer to " * 30_000, "(" * 200_000),
        *("A and " * 50_000, "the answer is " * 30_000, '{"answer": ' * 30_000, "A, " * 90_000),
    ],
)
def test_no_filling_of_a_policy_costs_more_than_its_length(text):
    """This rule runs beside the others: time that grows with the square would stop them all."""
    assert multiple_choice(Sample("", text, "B")).value == 0.0
    assert multiple_choice(Sample("", text, "BC")).value == 0.0


def test_spaces_inside_of_a_box_are_no_letters():
    assert multiple_choice(Sample("", "\\boxed{ \\text{ (B) } }", "B")).value == 1.0
