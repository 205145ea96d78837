"""What a user does on the chat page of `hy3 serve`, in the words of playwright's Page."""

from typing import Any


def send(page: Any, message: str) -> None:
    page.fill("#prompt", message)
    page.press("#prompt", "Enter")


def ask(page: Any, message: str) -> None:
    """Sends, and waits for the answer's end."""
    send(page, message)
    page.locator(".assistant").last.locator("footer").wait_for()
