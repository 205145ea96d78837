// Keeps the end of the conversation in view while it grows, until the reader scrolls up to read.

const NEAR = 60; // px from the end that still count as being there

export class Follower {
  #scroller;
  #button;
  #following = true;
  #top = 0;

  constructor(scroller, button) {
    this.#scroller = scroller;
    this.#button = button;
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    button.onclick = () => this.toEnd();
  }

  /** Runs `change`, which lets the conversation grow, and stays at its end if the reader was there. */
  around(change) {
    change();
    if (this.#following) this.toEnd();
    else this.#scrolled();
  }

  toEnd() {
    this.#following = true;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#scrolled();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const near = scrollHeight - scrollTop - clientHeight < NEAR;
    if (scrollTop < this.#top - 1) this.#following = near && scrollTop + clientHeight >= scrollHeight - 1;
    else if (near) this.#following = true;
    this.#top = scrollTop;
    this.#button.hidden = near;
  }
}
