"""Any text can be encoded and comes back as it was."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab.models.tokenizer import END_OF_TEXT, VOCABULARY


@settings(max_examples=200)
@given(text=st.text(max_size=60))
def test_every_text_comes_back(byte_tokenizer, text):
    assert byte_tokenizer.decode(byte_tokenizer(text)["input_ids"]) == text


def test_end_of_text_is_one_token_and_the_first(byte_tokenizer):
    assert byte_tokenizer(END_OF_TEXT)["input_ids"] == [0]
    assert byte_tokenizer.eos_token_id == byte_tokenizer.bos_token_id == 0
    assert len(byte_tokenizer) <= VOCABULARY
    assert byte_tokenizer("a b")["input_ids"][0] != 0  # nothing is added
