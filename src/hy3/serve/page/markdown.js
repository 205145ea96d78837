// Markdown to DOM nodes, as it streams in. Blocks that later text cannot change are rendered once and left alone;
// only the last one (for a list, its last item; in a code block, nothing but the new lines) is rendered again.
//
// The subset that models write: paragraphs, headings, lists, task lists, tables, quotes, fenced code, rules. A line
// break is a line break. HTML is text.

import { h } from "./dom.js";
import { highlight } from "./highlight.js";
import { inline } from "./inline.js";

const MAX_DEPTH = 12; // of quotes and lists within one another; what is deeper is one paragraph
const FENCE = /^( *)(`{3,}|~{3,})(.*)$/;
const HEADING = /^ *(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ *(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ *>( ?)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const TASK = /^\[([ xX])\] /;

const blank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

function fenceOf(line) {
  const [, indent, marks, info] = FENCE.exec(line) ?? [];
  if (!marks || (marks[0] === "`" && info.includes("`"))) return null;
  return { indent: indent.length, marks, language: info.trim().split(/[\s{]/)[0] };
}

function closes(fence, line) {
  const mark = line.trim();
  return mark.length >= fence.marks.length && mark === fence.marks[0].repeat(mark.length);
}

const dedent = (line, width) => line.slice(Math.min(width, indentOf(line)));

function startsBlock(line) {
  if (fenceOf(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  // A year at the start of a line of a paragraph is no list.
  return item !== null && item[3] !== "" && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1);
}

function cells(line) {
  let row = line.trim();
  if (row.startsWith("|")) row = row.slice(1);
  if (row.endsWith("|") && !row.endsWith("\\|")) row = row.slice(0, -1);
  return row.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** The alignments of a table's columns, if `header` and `line` begin one. */
function tableColumns(header, line) {
  if (line === undefined || !header.includes("|") || !/^[\s|:-]+$/.test(line)) return null;
  const columns = cells(line);
  if (columns.length !== cells(header).length || !columns.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return columns.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
}

/** The blocks of `lines`, each with the number of its first line in `start`. */
function parse(lines, depth = 0) {
  if (depth > MAX_DEPTH) return [{ type: "paragraph", text: lines.join("\n"), start: 0 }];
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (blank(lines[at])) {
      at++;
      continue;
    }
    const { block, end } = READERS.reduce((found, read) => found ?? read(lines, at, depth), null);
    blocks.push({ ...block, start: at });
    at = end;
  }
  return blocks;
}

function readFence(lines, at) {
  const fence = fenceOf(lines[at]);
  if (!fence) return null;
  let end = at + 1;
  while (end < lines.length && !closes(fence, lines[end])) end++;
  const closed = end < lines.length;
  const text = lines.slice(at + 1, end).map((line) => dedent(line, fence.indent));
  return { block: { type: "code", fence, text: text.join("\n") + (closed && text.length ? "\n" : ""), closed }, end: end + 1 };
}

function readHeading(lines, at) {
  const [, marks, text = ""] = HEADING.exec(lines[at]) ?? [];
  return marks ? { block: { type: "heading", level: marks.length, text: text.replace(/\s#+\s*$/, "") }, end: at + 1 } : null;
}

function readRule(lines, at) {
  return RULE.test(lines[at]) ? { block: { type: "rule" }, end: at + 1 } : null;
}

function readQuote(lines, at, depth) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at;
  while (end < lines.length && (QUOTE.test(lines[end]) || !(blank(lines[end]) || startsBlock(lines[end])))) end++;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { block: { type: "quote", blocks: parse(inner, depth + 1) }, end };
}

function readItem(lines, at, depth) {
  const [marker, base, mark, space] = ITEM.exec(lines[at]) ?? [];
  if (marker === undefined || RULE.test(lines[at])) return null;
  const width = space.length > 4 ? marker.length - space.length + 1 : marker.length;
  // Models indent what belongs to "1." by two as often as by three.
  const belongs = (line) => indentOf(line) >= Math.min(width, base.length + 2);
  let end = at + 1;
  let gap = false; // blank lines just before
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (!blank(line) && !belongs(line) && (gap || startsBlock(line) || ITEM.test(line))) break;
    gap = blank(line);
  }
  const inner = [lines[at].slice(width), ...lines.slice(at + 1, end).map((line) => dedent(line, width))];
  inner[0] = inner[0].replace(TASK, (_, state) => (state === " " ? "☐ " : "☑ "));
  const ordered = /\d/.test(mark);
  const kind = ordered ? mark.at(-1) : mark;
  return { block: { type: "item", ordered, kind, number: parseInt(mark, 10), blocks: parse(inner, depth + 1) }, end };
}

function readTable(lines, at) {
  const align = tableColumns(lines[at], lines[at + 1]);
  if (!align) return null;
  let end = at + 2;
  while (end < lines.length && !blank(lines[end]) && !startsBlock(lines[end])) end++;
  const rows = lines.slice(at + 2, end).map(cells);
  return { block: { type: "table", align, header: cells(lines[at]), rows }, end };
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !blank(lines[end]) && !startsBlock(lines[end])) {
    if (tableColumns(lines[end], lines[end + 1])) break;
    end++;
  }
  const text = lines.slice(at, end).map((line) => line.trimStart());
  return { block: { type: "paragraph", text: text.join("\n").trimEnd() }, end };
}

const READERS = [readFence, readHeading, readRule, readQuote, readItem, readTable, readParagraph];

function withInline(element, text) {
  for (const node of inline(text)) element.append(node);
  return element;
}

function colour(code, text, language) {
  code.replaceChildren();
  for (const node of highlight(text, language)) code.append(node);
}

/** A code block, and within it the element its text goes to. */
function codeBlock(language) {
  const code = h("code");
  const copy = h("button", { type: "button", textContent: "Copy", class: "quiet", data: { action: "copy-code" } });
  const caption = h("figcaption", {}, h("span", { textContent: language }), copy);
  const element = h("figure", { class: "code" }, caption, h("pre", { tabIndex: 0 }, code));
  return { element, code };
}

function tableOf({ align, header, rows }) {
  const row = (tag, values) => {
    const fill = (side, column) => withInline(h(tag, { class: `align-${side}` }), values[column] ?? "");
    return h("tr", {}, ...align.map(fill));
  };
  const body = h("tbody");
  for (const values of rows) body.append(row("td", values));
  return h("div", { class: "table", tabIndex: 0 }, h("table", {}, h("thead", {}, row("th", header)), body));
}

function elementOf(block) {
  switch (block.type) {
    case "heading":
      return withInline(h(`h${block.level}`), block.text);
    case "rule":
      return h("hr");
    case "quote":
      return renderAll(h("blockquote"), block.blocks);
    case "table":
      return tableOf(block);
    case "code": {
      const { element, code } = codeBlock(block.fence.language);
      colour(code, block.text, block.fence.language);
      return element;
    }
    default:
      return withInline(h("p"), block.text);
  }
}

/** Appends a block; an item goes into the list at the end of `parent` if it is of its kind. Returns the new node. */
function render(parent, block) {
  if (block.type !== "item") return parent.appendChild(elementOf(block));
  const item = renderAll(h("li"), block.blocks);
  const last = parent.lastElementChild;
  if (last?.dataset.kind === block.kind) return last.appendChild(item);
  const list = h(block.ordered ? "ol" : "ul", { data: { kind: block.kind } }, item);
  if (block.ordered) list.start = block.number;
  return parent.appendChild(list);
}

function renderAll(parent, blocks) {
  for (const block of blocks) render(parent, block);
  return parent;
}

export class MarkdownStream {
  #root;
  #pending = ""; // source that later text may give another meaning
  #shown = []; // the nodes that show it
  #code = null; // the block that is open: {fence, code, partial: the text node of its unfinished line}

  constructor(root) {
    this.#root = root;
  }

  push(text) {
    this.#pending += text.replaceAll("\r", "");
    if (this.#code && !this.#growCode()) return;
    this.#renderPending();
  }

  /** No more text comes. */
  finish() {
    if (this.#code) this.#closeCode(closes(this.#code.fence, this.#pending) ? "" : this.#pending);
    this.#shown = [];
    this.#pending = "";
  }

  #renderPending() {
    for (const node of this.#shown) node.remove();
    this.#shown = [];
    const lines = this.#pending.split("\n");
    const blocks = parse(lines);
    const settled = this.#settled(blocks, lines);
    for (const block of blocks.slice(0, settled)) render(this.#root, block);
    if (settled) this.#pending = lines.slice(blocks[settled].start).join("\n");
    const rest = blocks.slice(settled);
    if (rest.length === 1 && this.#openCode(rest[0])) return;
    this.#shown = rest.map((block) => render(this.#root, block));
  }

  /** How many blocks are settled: those before one whose first line is complete, and therefore keeps its meaning. */
  #settled(blocks, lines) {
    const last = blocks.length - 1;
    if (last < 0) return 0;
    return blocks[last].start < lines.length - 1 ? last : Math.max(0, last - 1);
  }

  #openCode(block) {
    const lineEnd = this.#pending.indexOf("\n", this.#pending.search(/\S/));
    if (block.type !== "code" || block.closed || lineEnd < 0) return false;
    const { element, code } = codeBlock(block.fence.language);
    this.#root.append(element);
    this.#code = { fence: block.fence, code, partial: code.appendChild(document.createTextNode("")) };
    this.#pending = this.#pending.slice(lineEnd + 1);
    this.#growCode();
    return true;
  }

  /** Moves complete lines into the open code block; true if one of them closed it. */
  #growCode() {
    const { fence, partial } = this.#code;
    const lines = this.#pending.split("\n");
    const last = lines.length - 1;
    const found = lines.findIndex((line, i) => i < last && closes(fence, line));
    const closed = found >= 0;
    const end = closed ? found : last;
    const text = (line) => dedent(line, fence.indent);
    partial.before(lines.slice(0, end).map((line) => text(line) + "\n").join(""));
    this.#pending = lines.slice(closed ? end + 1 : end).join("\n");
    const mark = this.#pending.trim();
    const mayClose = mark !== "" && mark === fence.marks[0].repeat(mark.length);
    partial.data = closed || mayClose ? "" : text(this.#pending);
    if (closed) this.#closeCode("");
    return closed;
  }

  /** Colours wait for the end: a string or comment may go on over lines. */
  #closeCode(last) {
    const { fence, code, partial } = this.#code;
    partial.data = last;
    colour(code, code.textContent, fence.language);
    this.#code = null;
  }
}
