import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.errors import ConfigError
from zerowait.verl.launch.hydra_syntax import flattened, read, written

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
KEYS = st.text("ab_ .:=,[]{}()\\/-", min_size=1, max_size=5).filter(
    lambda key: key.strip(" ") == key and not key.replace("_", "").replace(".", "").isdigit()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(value=VALUES)
def test_hydra_reads_any_value_as_it_was(value):
    assert read(written({"k": value})) == {"k": value}


def test_a_key_that_hydra_cannot_read_is_an_error():
    with pytest.raises(ConfigError, match="no way to write the key 'é'"):
        written({"é": 1})


def test_a_text_that_hydra_cannot_read_stays_a_text():
    assert read("{a: ") == "{a: "
    assert flattened({"+x": "{a: ", "y": {}}) == {"x": "{a: ", "y": {}}
