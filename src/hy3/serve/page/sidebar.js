// The list of conversations: open, search, rename, export, delete.

import { byId, h, iconButton, sends } from "./dom.js";

const DAY = 24 * 60 * 60 * 1000;

export class Sidebar {
  #hooks;
  #conversations = [];
  #current = null;
  #running = new Set();

  /** `hooks`: rename(conversation, title), export(conversation), remove(conversation). */
  constructor(hooks) {
    this.#hooks = hooks;
    byId("search").oninput = () => this.#draw();
    byId("search-key").textContent = navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K";
    byId("conversations").onclick = (event) => this.#act(event);
    byId("open-sidebar").onclick = () => this.open();
    byId("close-sidebar").onclick = byId("shade").onclick = () => this.close();
  }

  /** Shows the conversations; `running` holds the ids of those being answered. */
  show(conversations, current, running) {
    this.#conversations = conversations.toSorted((a, b) => b.updated - a.updated);
    this.#current = current;
    this.#running = running;
    if (!byId("conversations").querySelector("input")) this.#draw(); // not while a title is being typed
  }

  open() {
    document.body.classList.add("drawer");
    byId("close-sidebar").focus();
  }

  close() {
    document.body.classList.remove("drawer");
  }

  search() {
    this.open();
    byId("search").select();
    byId("search").focus();
  }

  #draw() {
    const wanted = byId("search").value.trim().toLowerCase();
    const found = this.#conversations.filter((conversation) => matches(conversation, wanted));
    const groups = Map.groupBy(found, ({ updated }) => ageOf(updated));
    const drawn = [...groups].flatMap(([age, members]) => [
      h("h2", { textContent: age }),
      h("ul", {}, ...members.map((conversation) => this.#item(conversation))),
    ]);
    if (!found.length) drawn.push(h("p", { class: "note", textContent: wanted ? "Nothing found." : "No conversations yet." }));
    byId("conversations").replaceChildren(...drawn);
  }

  #item(conversation) {
    const { id, title } = conversation;
    const link = h("a", { href: `#${id}`, textContent: title, title });
    if (id === this.#current) link.setAttribute("aria-current", "page");
    if (this.#running.has(id)) link.prepend(h("span", { class: "dot busy", title: "Answering" }));
    const actions = [
      iconButton("edit", "Rename", "rename"),
      iconButton("export", "Export", "export"),
      iconButton("delete", "Delete", "remove"),
    ];
    return h("li", { data: { id } }, link, h("span", { class: "actions" }, ...actions));
  }

  #act(event) {
    const action = event.target.closest("[data-action]")?.dataset.action;
    const item = event.target.closest("li");
    const conversation = this.#conversations.find(({ id }) => id === item?.dataset.id);
    if (!conversation) return;
    if (action === "rename") this.#rename(item, conversation);
    else if (action) this.#hooks[action](conversation);
    else if (event.target.closest("a")) this.close();
  }

  #rename(item, conversation) {
    const field = h("input", { value: conversation.title, maxLength: 200, aria: { label: "Title" } });
    const finish = (title) => {
      field.onblur = null;
      item.replaceChildren();
      if (title.trim()) this.#hooks.rename(conversation, title.trim());
      this.#draw();
    };
    field.onblur = () => finish(field.value);
    field.onkeydown = (event) => {
      if (sends(event)) finish(field.value);
      if (event.key === "Escape" && !event.isComposing) {
        event.stopPropagation();
        finish("");
      }
    };
    item.replaceChildren(field);
    field.select();
  }
}

function matches({ title, messages }, wanted) {
  if (!wanted || title.toLowerCase().includes(wanted)) return true;
  return messages.some(({ content }) => content.toLowerCase().includes(wanted));
}

function ageOf(time) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return "Today";
  if (time >= today - DAY) return "Yesterday";
  return time >= today - 7 * DAY ? "Last week" : "Earlier";
}
