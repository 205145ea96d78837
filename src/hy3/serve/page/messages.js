// One view for each message: built once, and while the message grows only what is new in it is drawn.

import { h, iconButton, sends } from "./dom.js";
import { speed } from "./generation.js";
import { MarkdownStream } from "./markdown.js";

const seconds = (ms) => (ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : duration(Math.round(ms / 1000)));
const duration = (whole) => (whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`);

export function userView(message, siblings) {
  const text = h("div", { class: "bubble", textContent: message.content });
  const foot = h("footer", {}, branches(message, siblings), iconButton("copy", "Copy", "copy"), iconButton("edit", "Edit", "edit"));
  foot.append(iconButton("delete", "Delete from here on", "cut"));
  return h("article", { class: "message user", data: { id: message.id }, aria: { label: "You" } }, text, foot);
}

/** The field in which a sent message is changed. */
export function editor(text, { save, cancel }) {
  const field = h("textarea", { value: text, aria: { label: "Edit the message" } });
  const buttons = h(
    "div",
    { class: "editor-foot" },
    h("button", { type: "button", textContent: "Cancel", onclick: cancel }),
    h("button", { type: "submit", textContent: "Send", class: "primary" }),
  );
  const form = h("form", { class: "editor" }, field, buttons);
  form.onsubmit = (event) => {
    event.preventDefault();
    if (field.value.trim()) save(field.value.trim());
  };
  field.onkeydown = (event) => {
    if (sends(event)) {
      event.preventDefault();
      form.requestSubmit();
    }
    if (event.key === "Escape" && !event.isComposing) {
      event.stopPropagation();
      cancel();
    }
  };
  field.oninput = () => fit(field);
  return { form, field };
}

/** Makes a text field as high as its text; the style sheet sets the limit. */
export function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

/** "‹ 2 / 3 ›" for a message that has others beside it. */
function branches(message, siblings) {
  if (siblings.length < 2) return null;
  const place = siblings.indexOf(message);
  const back = iconButton("back", "The one before", "previous");
  const forward = iconButton("forward", "The next one", "next");
  back.disabled = place === 0;
  forward.disabled = place === siblings.length - 1;
  return h("span", { class: "branches" }, back, h("span", { textContent: `${place + 1} / ${siblings.length}` }), forward);
}

export class AnswerView {
  #message;
  #siblings;
  #generation;
  #thinking = null; // {details, summary, markdown}
  #content = null; // {element, markdown}
  #cards = new Map(); // index of a call -> its card
  #wait = null;
  #clock = null;

  /** `generation` while the answer is being written, else null. */
  constructor(message, siblings, generation) {
    this.#message = message;
    this.#siblings = siblings;
    this.#generation = generation;
    this.element = h("article", { class: "message assistant", data: { id: message.id }, aria: { label: "Answer" } });
    if (generation) {
      this.element.setAttribute("aria-busy", "true");
      this.#clock = setInterval(() => this.#tick(), 200);
    }
    this.update();
    if (!generation) this.finish();
  }

  /** Draws what the message has got since the last time. */
  update() {
    const { reasoning, content, calls = [] } = this.#message;
    if (reasoning) {
      this.#thinking ??= this.#newThinking();
      this.#thinking.grow(reasoning);
    }
    if (content) {
      this.#content ??= this.#place(growing(h("div", { class: "markdown" })));
      this.#content.grow(content);
    }
    calls.forEach((call, index) => this.#drawCall(call, index));
    this.#tick();
  }

  /** The answer is complete, stopped or failed. */
  finish() {
    const { calls = [], error, finish } = this.#message;
    this.close();
    this.#generation = null;
    this.element.removeAttribute("aria-busy");
    this.#wait?.remove();
    this.#tick();
    this.#thinking?.finish();
    this.#content?.finish();
    calls.forEach((call, index) => this.#drawCall(call, index));
    if (error) this.element.append(errorBox(error));
    else if (finish === "length") this.element.append(note("Cut off: no tokens were left for more (max tokens, or the context)."));
    else if (finish === "stopped") this.element.append(note("Stopped."));
    else if (!this.#content && !calls.length) this.element.append(note("The answer is empty."));
    this.element.append(this.#foot());
  }

  /** Shows the result of a call. False if there is no such call. */
  showResult(callId, text) {
    const index = (this.#message.calls ?? []).findIndex(({ id }) => id === callId);
    this.#cards.get(index)?.append(h("h3", { textContent: "Result" }), h("pre", { textContent: text, tabIndex: 0 }));
  }

  /** Fields for the results of the open calls, and a button to go on with them. */
  askResults(calls, send) {
    const fields = calls.map((call) => {
      const field = h("textarea", { rows: 2, class: "mono", placeholder: "Paste the result", required: true });
      field.setAttribute("aria-label", `Result of ${call.name}`);
      const index = this.#message.calls.findIndex(({ id }) => id === call.id);
      this.#cards.get(index).append(h("label", {}, "Result", field));
      return field;
    });
    const text = calls.length > 1 ? "Continue with the results" : "Continue with the result";
    const button = h("button", { type: "button", class: "primary continue", textContent: text });
    button.onclick = () => {
      const missing = fields.find((field) => !field.reportValidity());
      if (!missing) send(fields.map((field, i) => ({ callId: calls[i].id, content: field.value })));
    };
    this.element.querySelector("footer").before(button);
  }

  /** The view is taken off the page. */
  close() {
    clearInterval(this.#clock);
  }

  #place(part) {
    this.#wait?.remove();
    this.element.append(part.element);
    return part;
  }

  #newThinking() {
    const summary = h("summary");
    const body = growing(h("div", { class: "markdown" }));
    const details = h("details", { class: "thinking" }, summary, body.element);
    return { ...this.#place({ element: details }), summary, grow: body.grow, finish: body.finish };
  }

  /** The times that run while an answer is written. */
  #tick() {
    const { reasoning, content, calls, timing } = this.#message;
    if (this.#thinking) {
      const over = timing?.thinking ?? null;
      const running = this.#generation && over === null;
      const spent = over ?? (running ? this.#generation.elapsed - timing.first : null);
      this.#thinking.element.classList.toggle("running", Boolean(running));
      this.#thinking.summary.textContent = `${running ? "Thinking…" : "Thought"}${spent === null ? "" : `${running ? "" : " for"} ${seconds(spent)}`}`;
    }
    if (!this.#generation || reasoning || content || calls?.length) return;
    this.#wait ??= this.element.appendChild(h("p", { class: "wait" }));
    this.#wait.textContent = `Reading the prompt… ${seconds(this.#generation.elapsed)}`;
  }

  #drawCall(call, index) {
    if (!this.#cards.has(index)) {
      const card = h("section", { class: "call", aria: { label: "Tool call" } }, h("h3"), h("pre", { tabIndex: 0 }));
      this.#cards.set(index, this.#place({ element: card }).element);
    }
    const [title, given] = this.#cards.get(index).children;
    title.textContent = call.name;
    given.textContent = this.#generation ? call.arguments : pretty(call.arguments);
  }

  #foot() {
    const { content, error } = this.#message;
    const foot = h("footer", {}, branches(this.#message, this.#siblings));
    if (content) foot.append(iconButton("copy", "Copy", "copy"));
    if (!error) foot.append(iconButton("retry", "Answer again", "retry"));
    foot.append(iconButton("delete", "Delete from here on", "cut"), h("span", { class: "speeds", textContent: speeds(this.#message) }));
    return foot;
  }
}

/** An element with Markdown that grows: `grow` takes the whole text so far, `finish` ends it. */
function growing(element) {
  const markdown = new MarkdownStream(element);
  let drawn = 0;
  const grow = (text) => {
    if (text.length > drawn) markdown.push(text.slice(drawn));
    drawn = text.length;
  };
  return { element, grow, finish: () => markdown.finish() };
}

function note(text) {
  return h("p", { class: "note", textContent: text });
}

function errorBox({ text, status }) {
  const box = h("div", { class: "error" }, h("p", { textContent: text }));
  box.setAttribute("role", "alert");
  if (status === 401) box.append(h("button", { type: "button", textContent: "Enter the key", data: { action: "settings" } }));
  box.append(h("button", { type: "button", textContent: "Try again", data: { action: "retry" } }));
  return box;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function speeds(message) {
  const { usage, timing } = message;
  const parts = [];
  const rate = speed(message);
  if (usage) parts.push(`${usage.completion.toLocaleString()} tokens`);
  if (rate) parts.push(`${rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString()} tokens/s`);
  if (timing) parts.push(`first after ${timing.first < 1000 ? `${Math.round(timing.first)} ms` : seconds(timing.first)}`);
  if (usage) {
    const cached = usage.cached ? `, ${usage.cached.toLocaleString()} cached` : "";
    parts.push(`prompt ${usage.prompt.toLocaleString()}${cached}`);
  }
  return parts.join(" · ");
}
