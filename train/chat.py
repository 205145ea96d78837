"""Conversations to token ids and loss masks, through the product's own chat template."""

from typing import Any

import numpy as np
from tokenizers import Tokenizer

from train import template
from train.tasks import Conversation


class Chat:
    """One tokenizer's view of conversations."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        self.assistant, self.end_think = ids[template.ASSISTANT], ids[template.END_THINK]
        self.eos, self.pad = ids[template.EOS], ids[template.PAD]

    def render(self, conversation: Conversation, **kwargs: Any) -> str:
        return template.render(conversation.messages, conversation.tools, conversation.effort, **kwargs)

    def prompt(self, conversation: Conversation) -> list[int]:
        """The prompt that asks for the conversation's last message."""
        asked = Conversation(conversation.messages[:-1], conversation.tools, conversation.effort)
        return self.tokenizer.encode(self.render(asked, add_generation_prompt=True)).ids

    def answer(self, conversation: Conversation) -> list[int]:
        """What the model should write after `prompt`, its end token included."""
        ids: list[int] = self.example(conversation)[0].tolist()
        return ids[len(self.prompt(conversation)) :]

    def example(self, conversation: Conversation) -> tuple[np.ndarray, np.ndarray]:
        """(ids, mask) of a whole conversation; mask is True where a token is one the assistant writes."""
        ids = self.tokenizer.encode(self.render(conversation, is_training=True)).ids
        mask = np.zeros(len(ids), bool)
        thinking = conversation.effort != "no_think"
        start = None
        for i, token in enumerate(ids):
            if token == self.assistant:
                # The prompt writes the assistant's token and opens the block; without thinking it closes it
                # too.
                empty = ids[i + 2] == self.end_think
                start = i + 3 if empty or not thinking else i + 2
            elif token == self.eos and start is not None:
                mask[start : i + 1] = True
                start = None
        return np.array(ids, np.int16), mask
