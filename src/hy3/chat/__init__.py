"""A conversation with a model: its messages and token ids, the stream of an answer, the interactive loop."""
