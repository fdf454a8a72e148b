"""Prompts become the same tokens as transformers makes of them; text streams whole characters."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tests.unit.verillm.builders import SPEC
from verillm.errors import InputError, ModelMismatch
from verillm.hashing import sha
from verillm.model import ModelSpec
from verillm.prompt import PromptFormat, TextStream

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def byte_tokenizer() -> bytes:
    """A token a byte, with <s> before and a special </s>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1} | {c: i + 2 for i, c in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return tokenizer.to_str().encode()


FILE = byte_tokenizer()


def spec(template: str = TEMPLATE) -> ModelSpec:
    return replace(
        SPEC, tokenizer_hash=sha(FILE), template_hash=sha(template.encode()), end_tokens=(1,)
    )


def format_of(template: str = TEMPLATE) -> PromptFormat:
    return PromptFormat.of(spec(template), FILE, template.encode())


def test_files_that_are_not_the_specs_are_refused() -> None:
    with pytest.raises(ModelMismatch, match=r"tokenizer\.json"):
        PromptFormat.of(spec(), FILE + b" ", TEMPLATE.encode())
    with pytest.raises(ModelMismatch, match="template"):
        PromptFormat.of(spec(), FILE, TEMPLATE.encode() + b" ")


def test_a_tokenizer_that_does_not_load_is_a_mismatch_not_a_crash() -> None:
    broken = replace(spec(), tokenizer_hash=sha(b"{}"))
    with pytest.raises(ModelMismatch, match="does not load"):
        PromptFormat.of(broken, b"{}", TEMPLATE.encode())


def test_a_plain_prompt_gets_the_tokenizers_special_tokens() -> None:
    found = format_of().encode("ab")
    assert found[0] == 0 and len(found) == 3


def test_a_conversation_ends_where_the_assistant_begins() -> None:
    chat = format_of()
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert chat.render(messages) == "<s>system:s\nuser:u\nassistant:"
    assert chat.encode_chat(messages)[0] == 0


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user"}],
        [{"role": "user", "content": 3}],
        [{"role": "u", "content": "\ud800"}],
    ],
    ids=["none", "no content", "not a string", "not Unicode"],
)
def test_messages_that_are_none_are_refused(messages: list[dict[str, str]]) -> None:
    with pytest.raises(InputError):
        format_of().render(messages)


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ 1 / 0 }}",
        "{% for",
    ],
)
def test_a_template_reaches_nothing_but_its_messages(template: str) -> None:
    with pytest.raises(InputError):
        format_of(template).render([{"role": "user", "content": "u"}])


def test_a_model_without_template_takes_prompts_only() -> None:
    with pytest.raises(InputError, match="give a prompt"):
        format_of("").render([{"role": "user", "content": "u"}])


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_pieces_of_a_stream_are_the_text_of_all_tokens(text: str) -> None:
    form = format_of()
    tokens = form.encode(text)
    stream = TextStream(form)
    pieces = [stream.push(token) for token in tokens]
    assert "".join([*pieces, stream.end()]) == form.decode(tokens) == text


def test_a_character_split_over_tokens_waits_until_it_is_whole() -> None:
    form = format_of()
    stream = TextStream(form)
    pieces = [stream.push(token) for token in form.encode("é🙂")]
    assert pieces == ["", "", "é", "", "", "", "🙂"]


def test_what_never_becomes_a_character_comes_at_the_end() -> None:
    form = format_of()
    stream = TextStream(form)
    assert [stream.push(token) for token in form.encode("é")[:2]] == ["", ""]
    assert stream.end() == "\ufffd"


@pytest.mark.model
def test_the_default_models_prompts_equal_transformers() -> None:
    from verillm.engine.prepare import default_folder

    folder: Path = default_folder()
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    file, template = (folder / "tokenizer.json").read_bytes(), reference.chat_template
    named = replace(SPEC, tokenizer_hash=sha(file), template_hash=sha(template.encode()))
    form = PromptFormat.of(named, file, template.encode())
    messages = [{"role": "user", "content": "Where is  the moon? 🙂\n"}]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert form.render(messages) == expected
    assert (
        list(form.encode_chat(messages)) == reference(expected, add_special_tokens=False).input_ids
    )
    assert list(form.encode("Hello, moon")) == reference("Hello, moon").input_ids
