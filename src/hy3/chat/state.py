"""A chat kept in a file between two runs: the session's state, and beside it in the same file the messages.

Unlike what /save writes, it is of use only with the same model, KV type and backend; but then the
conversation goes on bit for bit, and nothing of it is computed again.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from hy3.chat.conversation import Conversation
from hy3.errors import Hy3Error

if TYPE_CHECKING:
    from hy3core import Session


class KeptChat:
    """`path` need not exist yet. Hy3Error if it never could: better now than when there is a chat to lose."""

    def __init__(self, path: Path, session: "Session", conversation: Conversation) -> None:
        self._path = path
        self._session = session
        self._conversation = conversation
        if not path.parent.is_dir():
            raise Hy3Error(f"There is no folder {path.parent}", "Check the path of --session")
        if path.is_dir():
            raise Hy3Error(f"{path} is a directory", "Give a file with --session")

    def restore(self) -> str | None:
        """Takes the chat from the file; what to tell the user, None if there is no file yet, or only its
        place (mktemp).
        """
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        messages = self._session.load(self._path)
        self._conversation.take_json(messages.decode("utf-8", "replace"), str(self._path))
        return f"Went on from {self._counted()} in {self._path}."

    def keep(self) -> str:
        """Writes the chat to the file; what to tell the user."""
        self._session.save(self._path, self._conversation.to_json().encode("utf-8", "surrogatepass"))
        return f"Kept {self._counted()} in {self._path}."

    def _counted(self) -> str:
        return f"{len(self._conversation.turns)} messages ({self._session.position} tokens)"
