"""Rows of published data sets: what is read from each form, and the error for a row that is none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.errors import DataError
from zerowait.scorers.answers import gold_texts
from zerowait.search.documents import Document, distinct, documents_in
from zerowait.search.questions import Columns, Question, question_in, training_row
from zerowait.search.wiki import Article, held_out, questions_about

SEARCH_R1 = {
    "id": "train_0",
    "question": "Which city is the capital of Peru?",
    "golden_answers": ["Lima"],
    "data_source": "nq",
    "prompt": [{"role": "user", "content": "Answer this."}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Lima"]}},
    "extra_info": {"split": "train", "index": 0},
}
VERL = {
    "data_source": "searchR1_nq",
    "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}],
    "reward_model": {"ground_truth": {"target": ["Lima"]}},
    "extra_info": {"question": "capital of Peru?"},
}
HOTPOT = {"_id": "5a7", "question": "Where is Lima?", "answer": "Peru", "type": "bridge"}
TRIVIA = {
    "question_id": "tc_1",
    "question": "?",
    "answer": {"value": "Lima", "aliases": ["Lima, Peru", "Lima"], "normalized_value": "lima"},
}
SQUAD = {"id": "1", "question": "?", "answers": {"text": ["Lima", "Lima"], "answer_start": [0, 9]}}
NQ_OPEN = {"question": "?", "answer": ["Lima", "Ciudad de los Reyes"]}


def read(row, **columns):
    return question_in(row, Columns(**columns), where="f:3")


@pytest.mark.parametrize(
    ("row", "id_", "answers"),
    [
        (SEARCH_R1, "train_0", ("Lima",)),
        (VERL, "", ("Lima",)),
        (HOTPOT, "5a7", ("Peru",)),
        (TRIVIA, "tc_1", ("Lima, Peru", "Lima")),
        (SQUAD, "1", ("Lima",)),
        (NQ_OPEN, "", ("Lima", "Ciudad de los Reyes")),
        ({"query": "?", "answer": 42}, "", ("42",)),
    ],
)
def test_each_published_form_is_read(row, id_, answers):
    question = read(row)
    assert (question.id, question.answers) == (id_, answers)


def test_the_files_own_source_and_messages_go_along():
    question = read(VERL)
    assert question.source == "searchR1_nq"
    assert [message["role"] for message in question.prompt] == ["system", "user"]
    assert question.text == "capital of Peru?"


def test_other_columns_can_be_named_and_kept():
    row = {"q": "Where?", "a": "Lima", "key": 7, "level": "easy"}
    question = read(row, question="q", answers="a", id="key", keep=("level",))
    assert question == Question(text="Where?", answers=("Lima",), id="7", extra={"level": "easy"})


@pytest.mark.parametrize(
    ("row", "columns", "says"),
    [
        ({"qestion": "?", "answer": "a"}, {}, "f:3: has no question .* did you mean 'qestion'"),
        ({"question": "?", "anwser": "a"}, {}, "has no answer .* --answers; did you mean 'anwser'"),
        ({"question": "?", "answer": "a"}, {"question": "qu"}, "no column 'qu' for the question"),
        ({"question": "?", "answer": "a"}, {"answers": "answr"}, "did you mean 'answer'"),
        ({"question": "?", "answer": "a"}, {"keep": ("lvl",)}, "no column 'lvl' to keep"),
        ({"question": " ", "answer": "a"}, {}, "the question under 'question' is ' '"),
        ({"question": ["?"], "answer": "a"}, {}, "has to be text"),
        ({"question": "?", "answer": [" ", None]}, {}, "no answer can be read"),
        ({}, {}, "f:3: has no question"),
        (
            {"query": ["?"], "answer": "a"},
            {},
            "f:3: the question under 'query' is .*has to be text",
        ),
        ({"question": "?", "answer": None}, {}, "f:3: its answer under 'answer' is missing"),
        ({"question": "?", "answer": math.nan}, {}, "f:3: its answer under 'answer' is missing"),
        ({"question": "?", "gold": None}, {"answers": "gold"}, "under 'gold' is missing"),
        (
            {"question": "?", "golden_answers": []},
            {},
            "read from 'golden_answers', which is \\[\\]",
        ),
        ({"question": "?", "answer": True}, {}, "under 'answer' is True, .*write 'yes' or 'no'"),
        ({"question": "?", "answer": ["a", {"b": 1}]}, {}, r"'answer'\[1\] is .* none of target"),
        ({"question": "?", "answer": {"value": [1j]}}, {}, r"'answer'\['value'\]\[0\] is 1j"),
        ({"question": "?", "answer": math.inf}, {}, "'answer' is inf, which is no answer"),
        ({"question": "?", "answer": "a", "id": {}}, {}, "f:3: the id under 'id' is {}"),
        ({"question": "?", "answer": "a", "data_source": ["x"]}, {}, "'data_source' is \\['x'\\]"),
    ],
)
def test_a_row_without_question_or_answer_says_what_it_has_instead(row, columns, says):
    with pytest.raises(DataError, match=says):
        read(row, **columns)


def test_a_training_row_asks_in_the_words_that_the_agent_understands():
    row = training_row(read(HOTPOT), index=4, source="hotpotqa", instructions="search")
    asked = row["prompt"][0]["content"]
    assert asked.endswith("Question: Where is Lima?")
    assert "<search>" in asked
    assert row["data_source"] == "hotpotqa"
    assert row["extra_info"] == {"index": 4, "id": "5a7", "question": "Where is Lima?"}


def test_a_prompt_is_kept_or_left_out_by_instructions():
    kept = training_row(read(VERL), index=0, source="x", instructions="keep")
    assert kept["prompt"] == VERL["prompt"]
    bare = training_row(read(VERL), index=0, source="x", instructions="none")
    assert bare["prompt"] == [{"role": "user", "content": "capital of Peru?"}]


def test_a_prompt_that_is_not_there_cannot_be_kept():
    with pytest.raises(DataError, match="f:1: has no chat messages"):
        training_row(read(HOTPOT), index=0, source="x", instructions="keep", where="f:1")


@pytest.mark.parametrize("message", ["hello", {"content": "x"}, {"role": "user"}, None])
def test_a_prompt_that_is_no_chat_is_refused_where_it_is_kept(message):
    row = SEARCH_R1 | {"prompt": [*SEARCH_R1["prompt"], message]}
    with pytest.raises(DataError, match=r"f:1: 'prompt'\[1\] is .* has to be a chat message"):
        training_row(read(row), index=0, source="x", instructions="keep", where="f:1")
    assert training_row(read(row), index=0, source="x", instructions="search")


@pytest.mark.parametrize(
    ("found", "answer"),
    [(2.0, "2"), (2.5, "2.5"), (7, "7"), (10**30, "1" + "0" * 30), (1e300, "1e+300")],
)
def test_a_number_is_the_answer_that_people_write(found, answer):
    """Tables make 2.0 of 2 in a column that has gaps, and the gaps NaN."""
    row = {"question": "How many?", "answer": [found, float("nan")]}
    assert read(row).answers == (answer,)


def test_a_question_that_only_a_prompt_holds_cannot_be_asked_anew():
    row = {"prompt": VERL["prompt"], "answer": "a"}
    with pytest.raises(DataError, match=r"f:1: .*--instructions keep"):
        training_row(read(row), index=0, source="x", instructions="search", where="f:1")


@given(
    text=st.text(min_size=1).filter(str.strip),
    answers=st.lists(st.text(min_size=1).filter(str.strip), min_size=1),
)
def test_the_answers_of_a_row_are_the_golds_of_the_rules(text, answers):
    question = read({"question": text, "golden_answers": answers})
    row = training_row(question, index=0, source="x", instructions="search")
    golds = gold_texts(row["reward_model"]["ground_truth"])
    assert golds == list(dict.fromkeys(answer.strip() for answer in answers))


LIMA = Document("Lima", "Lima is in Peru. It is large.")


@pytest.mark.parametrize(
    "row",
    [
        {"context": [["Lima", ["Lima is in Peru.", " It is large."]]]},
        {"context": {"title": ["Lima"], "sentences": [["Lima is in Peru.", " It is large."]]}},
        {"paragraphs": [{"title": "Lima", "paragraph_text": LIMA.text, "idx": 0}]},
        {"title": "Lima", "text": LIMA.text},
        {"id": 3, "contents": f'"Lima"\n{LIMA.text}'},
    ],
)
def test_each_form_of_a_document_is_read(row):
    assert list(documents_in(row, where="f:1")) == [LIMA]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"titel": "Lima"}, "f:1: is no document"),
        ({"title": "Lima", "txt": "t"}, "did you mean 'txt'"),
        ({"title": "Lima", "text": " "}, "f:1: 'text' is ' ', and has to be text"),
        ({"title": "Lima", "contents": 5}, "f:1: 'contents' is 5, and has to be text"),
        ({"title": ["Lima"], "text": "t"}, "f:1: 'title' is \\['Lima'\\], and has to be text"),
        ({"paragraphs": [{"title": "Lima"}]}, "f:1: 'paragraphs' has to be .*paragraph_text"),
        ({"context": [["Lima", None]]}, "'context' has to be"),
        ({"context": "Lima"}, r"a list of \[title, sentences\]"),
        ({"context": {"title": ["Lima"], "sentences": []}}, "as on Hugging Face"),
        ({"context": [["Lima", 3]]}, "'context' has to be"),
    ],
)
def test_what_is_no_document_is_said_to_be_none(row, says):
    with pytest.raises(DataError, match=says):
        list(documents_in(row, where="f:1"))


def test_a_paragraph_that_many_questions_share_is_one_document():
    other = Document("Lima", "Another text.")
    assert list(distinct([LIMA, other, LIMA])) == [LIMA, other]


def test_a_title_is_one_line():
    assert Document("Li\nma ", " text\n").contents == "Li ma\ntext"


@pytest.mark.parametrize(
    ("title", "description", "asked"),
    [
        ("Ho Chi Minh", "Leader of North Vietnam", True),
        ("Mustard (condiment)", "Condiment made from mustard seeds", False),
        ("Birds", "Class of bird like animals", False),
        ("Lima", "City", False),
        ("Lima", "", False),
    ],
)
def test_a_description_that_gives_its_article_away_makes_no_question(title, description, asked):
    assert len(questions_about([Article(title, "text", description)])) == asked


def test_a_description_of_two_articles_makes_no_question():
    twins = [Article(name, "text", "River in South America") for name in ("Purus", "Ucayali")]
    assert questions_about(twins) == []


def test_what_stands_behind_a_title_in_parentheses_need_not_be_said():
    article = Article("Mercury (planet)", "text", "First from the Sun, and smallest")
    assert questions_about([article])[0].answers == ("Mercury (planet)", "Mercury")


def test_held_out_questions_are_no_others_questions_and_a_seed_decides_which():
    asked = [Question(text=str(number), answers=("a",)) for number in range(20)]
    train, rest = held_out(asked, 5, seed=1)
    assert sorted([*train, *rest], key=lambda q: int(q.text)) == asked
    assert len(rest) == 5
    assert held_out(asked, 5, seed=1) == (train, rest)
    assert held_out(asked, 5, seed=2) != (train, rest)


def test_more_cannot_be_held_out_than_there_are():
    with pytest.raises(DataError, match="of 1 questions, 1 cannot"):
        held_out([Question(text="?", answers=("a",))], 1, seed=0)
