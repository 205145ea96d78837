"""The evaluation suites of `hy3 eval`: questions, graders, and the loop that asks them."""
