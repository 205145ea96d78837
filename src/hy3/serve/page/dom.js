// Small helpers for building the page. Text reaches the document as text nodes only: nothing here parses HTML.

/** An element. `props` are its properties; `class`, `data` and `aria` (an object each but the first) are set as attributes. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  const { class: classes, data = {}, aria = {}, ...rest } = props;
  if (classes) element.className = classes;
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(`aria-${name}`, value);
  Object.assign(element, rest);
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** One of the symbols that index.html defines. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** A button that shows only an icon. Clicks are told apart by `data-action`. */
export function iconButton(name, label, action) {
  return h("button", { type: "button", class: "icon-button", title: label, aria: { label }, data: { action } }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/** Whether a key asks to send what was typed. Safari ends the composition of a character with an Enter of code 229. */
export function sends(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;
}

/** Copies also where the page has no secure context (plain http from another machine). */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { value: text, class: "offscreen" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A message at the foot of the page, with one thing to do about it. */
export function notify(text, action = null) {
  const toast = h("div", { class: "toast" }, h("span", { textContent: text }));
  const close = () => toast.remove();
  if (action) {
    const run = () => {
      close();
      action.run();
    };
    toast.append(h("button", { type: "button", textContent: action.label, onclick: run }));
  }
  byId("toasts").replaceChildren(toast);
  setTimeout(close, 8000);
}

/** The reader of the screen hears this; nothing is shown. */
export function announce(text) {
  byId("announcer").textContent = text;
}
