// Markdown within a paragraph: code, emphasis, links. One pass over the text, in linear time for any text, and
// every character of it that is not understood as Markdown stays a character.

import { h } from "./dom.js";

const MAX_DEPTH = 16; // of emphasis within emphasis; deeper marks are shown as they are
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const LINK_TARGET = /\(\s*(?:<([^<>\n]{0,4000})>|((?:[^\s()\\]|\\.|\([^\s()]*\)){0,4000}))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
const ANGLE_LINK = /<(https?:\/\/[^\s<>]{1,4000})>/y;
const BARE_LINK = /https?:\/\/[^\s<>"`[\]\u3000-\u303f\uff00-\uffef]{1,4000}/y;
const LINE_BREAK_TAG = /<br *\/?>/iy;
const ENTITY = /&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#x([\da-f]{1,6}));/iy;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const MATH = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };
const TAGS = { "*1": "em", _1: "em", "*2": "strong", _2: "strong", "~2": "del" };

/** The address if it is one that a link may lead to: http or https. */
export function safeUrl(address) {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/** The nodes of one paragraph's text. */
export function inline(text) {
  return new Inline(text).parse();
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.plain = ""; // characters seen and not yet a node
    this.out = []; // nodes
    this.depth = new Map(); // node -> elements within one another in it
    this.openers = { "*": [], _: [], "~": [] }; // runs that may still be closed, with their index in out
    this.brackets = []; // indices in out of "[" that may become links
    this.missing = new Set(); // closing marks that the rest of the text does not have
    this.ticks = null; // positions of runs of backticks, by length
  }

  parse() {
    while (this.at < this.text.length) {
      const read = READERS[this.text[this.at]];
      if (!read || !read.call(this)) this.plain += this.text[this.at++];
    }
    this.flush();
    return this.out;
  }

  flush() {
    if (this.plain) this.out.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  push(node, end) {
    this.flush();
    this.out.push(node);
    this.at = end;
    return true;
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  /** Where `mark` stands next; a mark that is not there is looked for once. */
  find(mark, from) {
    if (this.missing.has(mark)) return -1;
    const at = this.text.indexOf(mark, from);
    if (at < 0) this.missing.add(mark);
    return at;
  }

  escape() {
    if (this.math()) return true;
    const next = this.text[this.at + 1];
    if (next === "\n") return this.push(h("br"), this.at + 2);
    if (!next || !ESCAPABLE.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  /** Formulas are shown as they were written: their marks mean nothing here. */
  math() {
    const opening = this.text.slice(this.at, this.at + 2);
    if (!Object.hasOwn(MATH, opening)) return false;
    const closing = this.find(MATH[opening], this.at + 2);
    if (closing < 0) return false;
    return this.push(h("span", { class: "math", textContent: this.text.slice(this.at, closing + 2) }), closing + 2);
  }

  newline() {
    this.plain = this.plain.trimEnd();
    return this.push(h("br"), this.at + 1);
  }

  code() {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const { 0: run, index } of this.text.matchAll(/`+/g)) {
        if (!this.ticks.has(run.length)) this.ticks.set(run.length, []);
        this.ticks.get(run.length).push(index);
      }
      for (const positions of this.ticks.values()) positions.reverse();
    }
    let size = 1;
    while (this.text[this.at + size] === "`") size++;
    const positions = this.ticks.get(size) ?? [];
    while (positions.length && positions.at(-1) <= this.at) positions.pop();
    if (!positions.length) {
      this.plain += "`".repeat(size);
      this.at += size;
      return true;
    }
    const end = positions.at(-1);
    let content = this.text.slice(this.at + size, end).replaceAll("\n", " ");
    if (content.startsWith(" ") && content.endsWith(" ") && content.trim()) content = content.slice(1, -1);
    return this.push(h("code", { textContent: content }), end + size);
  }

  openBracket() {
    if (this.text[this.at] === "!" && this.text[this.at + 1] !== "[") return false;
    const mark = this.text[this.at] === "!" ? "![" : "["; // an image becomes a link to it: the page loads nothing
    this.push(document.createTextNode(mark), this.at + mark.length);
    this.brackets.push(this.out.length - 1);
    return true;
  }

  closeBracket() {
    const start = this.brackets.pop();
    if (start === undefined || this.text[this.at + 1] !== "(") return false;
    this.at++;
    const target = this.match(LINK_TARGET);
    this.at--;
    const url = target && safeUrl((target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1"));
    if (!url) return false;
    this.flush();
    const label = this.take(start + 1).flatMap((node) => (node.tagName === "A" ? [...node.childNodes] : [node]));
    this.out.pop();
    this.brackets = []; // no link within a link
    const link = anchor(url, label.length ? label : [document.createTextNode(url)]);
    this.depth.set(link, this.deepest(label));
    return this.push(link, this.at + 1 + target[0].length);
  }

  angle() {
    const found = this.match(ANGLE_LINK);
    const url = found && safeUrl(found[1]);
    if (url) return this.push(anchor(url, [document.createTextNode(found[1])]), this.at + found[0].length);
    const tag = this.match(LINE_BREAK_TAG);
    return tag !== null && this.push(h("br"), this.at + tag[0].length);
  }

  bareLink() {
    if (/\w/.test(this.text[this.at - 1] ?? "")) return false;
    let written = this.match(BARE_LINK)?.[0] ?? "";
    const stray = (end) => ".,;:!?'\"]}*_~".includes(end) || (end === ")" && !written.includes("("));
    while (written && stray(written.at(-1))) written = written.slice(0, -1);
    const url = safeUrl(written);
    return url !== null && this.push(anchor(url, [document.createTextNode(written)]), this.at + written.length);
  }

  entity() {
    const found = this.match(ENTITY);
    if (!found) return false;
    const [whole, name, decimal, hex] = found;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    this.plain += name ? ENTITIES[name.toLowerCase()] : code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
    this.at += whole.length;
    return true;
  }

  emphasis() {
    const char = this.text[this.at];
    let count = 1;
    while (this.text[this.at + count] === char) count++;
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + count] ?? " ";
    // Beside a space a run neither opens nor closes. CommonMark asks more where punctuation meets a letter, which
    // breaks emphasis in Chinese, where no space is there.
    let opens = /\S/.test(after);
    let closes = /\S/.test(before);
    if (char === "_") {
      opens &&= !/[\p{L}\p{N}]/u.test(before);
      closes &&= !/[\p{L}\p{N}]/u.test(after);
    }
    this.at += count;
    this.flush();
    const run = { char, length: count, count, both: opens && closes };
    if (closes) this.closeRun(run);
    if (!run.count) return true;
    this.out.push(document.createTextNode(char.repeat(run.count)));
    if (opens) this.openers[char].push({ ...run, index: this.out.length - 1 });
    return true;
  }

  /** Wraps what stands after matching openers; `run.count` tells what is left of the run. */
  closeRun(run) {
    const { char } = run;
    while (run.count) {
      const opener = this.openers[char].at(-1);
      if (!opener || apart(opener, run)) break;
      const size = Math.min(opener.count, run.count, 2);
      const tag = TAGS[char + size];
      if (!tag) break;
      if (this.deepest(this.out, opener.index + 1) >= MAX_DEPTH) {
        for (const stack of Object.values(this.openers)) stack.length = 0; // each would hold what is too deep already
        break;
      }
      const element = h(tag);
      const inner = this.take(opener.index + 1);
      this.depth.set(element, this.deepest(inner) + 1);
      for (const node of inner) element.append(node);
      opener.count -= size;
      run.count -= size;
      this.out.pop();
      if (opener.count) this.out.push(document.createTextNode(char.repeat(opener.count)));
      else this.openers[char].pop();
      this.out.push(element);
    }
  }

  /** Removes and returns the nodes from `start` on; what was open among them can no longer be closed. */
  take(start) {
    const stale = (index) => index !== undefined && index >= start;
    for (const stack of Object.values(this.openers)) while (stale(stack.at(-1)?.index)) stack.pop();
    while (stale(this.brackets.at(-1))) this.brackets.pop();
    return this.out.splice(start);
  }

  deepest(nodes, from = 0) {
    let depth = 0;
    for (let i = from; i < nodes.length; i++) depth = Math.max(depth, this.depth.get(nodes[i]) ?? 0);
    return depth;
  }
}

const READERS = {
  "\\": Inline.prototype.escape,
  $: Inline.prototype.math,
  "\n": Inline.prototype.newline,
  "`": Inline.prototype.code,
  "!": Inline.prototype.openBracket,
  "[": Inline.prototype.openBracket,
  "]": Inline.prototype.closeBracket,
  "<": Inline.prototype.angle,
  h: Inline.prototype.bareLink,
  "&": Inline.prototype.entity,
  "*": Inline.prototype.emphasis,
  _: Inline.prototype.emphasis,
  "~": Inline.prototype.emphasis,
};

/** CommonMark's rule of three: in "**b*c*d**" the first single star does not close the two. */
function apart(opener, run) {
  if (!opener.both && !run.both) return false;
  return (opener.length + run.length) % 3 === 0 && (opener.length % 3 !== 0 || run.length % 3 !== 0);
}

function anchor(url, children) {
  const link = h("a", { href: url, target: "_blank", rel: "noopener noreferrer", title: url });
  for (const child of children) link.append(child);
  return link;
}
