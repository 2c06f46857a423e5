"""Words in every script: a query finds the documents that contain it, spaces or not."""

import json
import unicodedata

import bm25s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.search.index import build_index, open_index
from zerowait.search.terms import document_terms, query_terms

# a document about each, what is asked about it, and a document in the same script about another
SCRIPTS = {
    "Chinese": ("秘鲁的首都是利马,也是该国最大的城市。", ["秘鲁首都", "利马", "最大城市"], "莫扎特是古典时期的作曲家。"),
    "one Chinese character": ("喝茶是中国的传统。", ["茶"], "莫扎特是古典时期的作曲家。"),
    "Japanese": ("ペルーの首都リマは最大の都市である。", ["ペルーの首都", "リマ", "最大の都市"], "モーツァルトは作曲家です。"),
    "half-width kana": ("ﾍﾟﾙｰの首都ﾘﾏ。", ["ペルー"], "モーツァルトは作曲家です。"),
    "Korean": ("페루의 수도는 리마이다.", ["페루 수도", "리마"], "모차르트는 작곡가이다."),
    "Thai": ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", ["เมืองหลวงของไทย", "กรุงเทพ"], "โมสาร์ทคือคีตกวี"),
    "Khmer": ("ភ្នំពេញជារដ្ឋធានីនៃប្រទេសកម្ពុជា", ["រដ្ឋធានី"], "ម៉ូហ្សាត"),
    "Hindi": ("नई दिल्ली भारत की राजधानी है।", ["भारत की राजधानी", "दिल्ली"], "मोत्सार्ट एक संगीतकार थे।"),
    "Tamil": ("சென்னை தமிழ்நாட்டின் தலைநகரம்.", ["தலைநகரம்"], "மோட்சார்ட் இசையமைப்பாளர்"),
    "Arabic with vowel signs": ("القَاهِرَة عاصمة مصر", ["القَاهِرَة"], "موتسارت ملحن"),
    "Persian with joiners": ("می\u200cروم تهران", ["میروم"], "موتسارت آهنگساز"),
    "accents apart": ("Cafe\u0301 Procope in Paris", ["Café"], "Mozart composed"),
    "full-width letters": ("\uff30\uff45\uff52\uff55 and Lima", ["Peru"], "Mozart composed"),
    "scripts in one word": ("iPhone手机很贵", ["iphone", "手机"], "莫扎特的钢琴"),
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_query_finds_the_document_that_contains_it_in_every_script(tmp_path, script):
    right, queries, other = SCRIPTS[script]
    lines = [json.dumps({"id": i, "contents": c}) for i, c in (("other", other), ("right", right))]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    build_index(tmp_path / "c.jsonl", tmp_path / "index")
    with open_index(tmp_path / "index") as index:
        for query in queries:
            found = [passage.id for passage in index.find([query], 3)[0]]
            assert found[:1] == ["right"], query


@pytest.mark.parametrize("word", ["हिन्दी", "दिल्ली", "தமிழ்நாடு", "বাংলা", "שָׁלוֹם", "العَرَبِيَّة", "ས྄ཀྱ"])
def test_a_combining_mark_splits_no_word(word):
    assert document_terms(f"x {word} y") == [unicodedata.normalize("NFKC", word)]


def test_running_scripts_are_pairs_and_ideographs_also_single_in_documents():
    assert document_terms("北京大") == ["北", "京", "大", "北京", "京大"]
    assert query_terms("北京大") == ["北京", "京大"]
    assert document_terms("ไทย") == query_terms("ไทย") == ["ไท", "ทย"]
    assert query_terms("서울") == ["서울"]


@given(st.text())
def test_whatever_is_asked_for_is_among_the_words_of_a_document_that_says_it(text):
    assert set(query_terms(text)) <= set(document_terms(text))


@given(st.text(st.characters(codec="ascii")))
def test_words_of_ascii_text_are_those_of_the_library(text):
    [expected] = bm25s.tokenize([text], return_ids=False, show_progress=False)
    assert document_terms(text) == query_terms(text) == [word for word in expected if word]
