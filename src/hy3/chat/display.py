"""Writes an answer to stdout as it comes: the thinking dimmed on a terminal, elsewhere between think tags."""

import os
import sys
from typing import TextIO

from hy3.chat.reply import Chunk

DIM, NORMAL = "\x1b[2m", "\x1b[0m"
# What a model writes must not move the cursor or retitle the window: control characters show as pictures
# (U+2400...).
VISIBLE = dict.fromkeys(range(0x80, 0xA0), 0xFFFD) | {0x7F: 0x2421}
VISIBLE |= {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}


class Display:
    """For one answer: `show` each chunk, then `end`."""

    def __init__(self, thinking: bool, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._dims = self._terminal and not os.environ.get("NO_COLOR")
        self._thinking = False
        self._turned = False  # between thinking and answer, with nothing shown of the latter
        self._last = "\n"
        self._opens = thinking

    def show(self, chunk: Chunk) -> None:
        text = chunk.text
        if self._opens:  # not earlier: the terminal is the progress bar's until there is something to show
            self._opens = False
            self._turn(True)
        if chunk.thinking != self._thinking:
            self._turn(chunk.thinking)
        if self._terminal:
            text = text.translate(VISIBLE)
            if self._turned:  # the empty lines with which models set the two apart
                text = text.lstrip("\n")
                self._turned = not text
        self._write(text)

    def end(self) -> None:
        """Leaves the terminal as it was, at the start of a line."""
        if self._thinking and self._dims:
            self._write(NORMAL)
        if self._last != "\n":
            self._write("\n")

    def _turn(self, thinking: bool) -> None:
        self._thinking, self._turned = thinking, True
        if not self._terminal:
            self._write("<think>" if thinking else "</think>")
            return
        if not thinking and self._last != "\n":
            self._write("\n")
        if self._dims:
            self._write(DIM if thinking else NORMAL)

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            if not text.startswith("\x1b"):
                self._last = text[-1]
