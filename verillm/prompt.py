"""From text to the very tokens that a model was registered with, and back.

Tokenizer and chat template come from whoever has them, and count only if their hashes are the
ModelSpec's.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from verillm.errors import InputError, ModelMismatch
from verillm.hashing import sha
from verillm.model import ModelSpec

REPLACEMENT: Final = "\ufffd"
Message = Mapping[str, str]


class _Refused(TemplateError):
    """What `raise_exception` in a template raises."""


def _raise(message: str) -> NoReturn:
    raise _Refused(message)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    # As transformers renders chat templates, but for `strftime_now`: prompts depend on no clock.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _raise
    return environment


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """A model's tokenizer and chat template, checked against its spec."""

    tokenizer: Tokenizer
    template: str
    end_tokens: tuple[int, ...]

    @classmethod
    def of(cls, spec: ModelSpec, tokenizer: bytes, template: bytes) -> "PromptFormat":
        """From the files' bytes; raises ModelMismatch unless they are the spec's."""
        if sha(tokenizer) != spec.tokenizer_hash:
            raise ModelMismatch(f"this tokenizer.json is not the one of {spec.name}")
        if sha(template) != spec.template_hash:
            raise ModelMismatch(f"this chat template is not the one of {spec.name}")
        try:
            parsed = Tokenizer.from_buffer(tokenizer)
            text = template.decode()
        except Exception as error:  # tokenizers raises nothing narrower
            raise ModelMismatch(f"the tokenizer of {spec.name} does not load: {error}") from error
        parsed.no_padding()
        parsed.no_truncation()
        return cls(parsed, text, spec.end_tokens)

    def encode(self, prompt: str) -> tuple[int, ...]:
        """Tokens of plain text, with the special tokens that the tokenizer puts around it."""
        return tuple(self.tokenizer.encode(_clean(prompt)).ids)

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a conversation, ending where the assistant's turn begins."""
        text = self.render(messages)
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def render(self, messages: Sequence[Message]) -> str:
        """A conversation as the template writes it; raises InputError."""
        if not self.template:
            raise InputError("this model has no chat template: give a prompt, not messages")
        if not messages:
            raise InputError("no messages")
        checked = [_message(message) for message in messages]
        try:
            template = _environment().from_string(self.template)
            return template.render(
                messages=checked,
                add_generation_prompt=True,
                bos_token=self._begin(),
                eos_token=self._end(),
            )
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise InputError(f"the chat template refuses these messages: {error}") from error

    def _begin(self) -> str:
        around = self.tokenizer.encode("").ids
        return (self.tokenizer.id_to_token(around[0]) or "") if around else ""

    def _end(self) -> str:
        return (self.tokenizer.id_to_token(self.end_tokens[0]) or "") if self.end_tokens else ""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without special ones."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)


class TextStream:
    """Text of a growing list of tokens, piece by piece; a character split over tokens waits.

    The pieces together are the text of all tokens. Decodes from a few tokens back, since a token's
    text depends on its neighbours.
    """

    __slots__ = ("_format", "_prefix", "_read", "_tokens")

    def __init__(self, format_: PromptFormat) -> None:
        self._format = format_
        self._tokens: list[int] = []
        self._prefix = self._read = 0

    def push(self, token: int) -> str:
        """The text that this token completes, often empty."""
        self._tokens.append(token)
        before = self._format.decode(self._tokens[self._prefix : self._read])
        now = self._format.decode(self._tokens[self._prefix :])
        if now.endswith(REPLACEMENT) or len(now) <= len(before):
            return ""
        self._prefix, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def end(self) -> str:
        """What is left, incomplete characters and all."""
        before = self._format.decode(self._tokens[self._prefix : self._read])
        self._read = len(self._tokens)
        return self._format.decode(self._tokens[self._prefix :])[len(before) :]


def _clean(text: str) -> str:
    if not isinstance(text, str):
        raise InputError("a prompt is a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError("the prompt is not valid Unicode") from error
    return text


def _message(message: Message) -> dict[str, str]:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise InputError("each message has a role and a content, both strings")
    return {"role": _clean(role), "content": _clean(content)}
