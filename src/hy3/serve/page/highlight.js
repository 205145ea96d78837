// Colours for code: comments, strings, numbers and keywords, told apart alike in all languages but for their comments.

import { h } from "./dom.js";

const LONGEST = 100_000; // characters; longer code stays plain
const HASH = "(?<![^\\s])#[^\\n]*";
const SLASHES = "//[^\\n]*|/\\*[^]*?(?:\\*/|$)";
const DASHES = "--[^\\n]*";
const COMMENTS = {};
const know = (names, comment) => names.split(" ").forEach((name) => (COMMENTS[name] = comment));
know("py python sh bash zsh shell yaml yml toml rb ruby r perl makefile dockerfile cmake elixir", HASH);
know("js javascript ts typescript jsx tsx json c h cpp c++ cs csharp java kotlin swift go rust rs scala dart php", SLASHES);
know("css scss cuda metal glsl proto zig", SLASHES);
know("sql lua haskell hs", DASHES);

const STRINGS = `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\[^]|[^\`\\\\])*\``;
const NUMBERS = "\\b(?:0x[\\da-fA-F]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";
const WORDS = `and as assert async await bool break case catch char class const constexpr continue def default del do done
  double elif else end enum except export extends extern false False fi final finally float fn for from func function global
  if impl import in int interface is lambda let local long loop match mod module mut namespace new nil None not null or
  package pass private protected pub public raise return self short signed static struct super switch template then this
  throw trait true True try type typedef typename undefined union unsigned until use using val var virtual void volatile
  where while with yield select from where insert update delete join group order by having limit create table
  SELECT FROM WHERE INSERT UPDATE DELETE JOIN LEFT INNER ON GROUP ORDER BY HAVING LIMIT CREATE TABLE AS AND OR NOT NULL`;
const KEYWORDS = `\\b(?:${WORDS.split(/\s+/).join("|")})\\b`;

/** The text of a code block as nodes, or strings where there is nothing to colour. */
export function highlight(text, language) {
  const name = language.toLowerCase();
  if (!Object.hasOwn(COMMENTS, name) || text.length > LONGEST) return [text];
  const parts = `(?<comment>${COMMENTS[name]})|(?<string>${STRINGS})|(?<number>${NUMBERS})|(?<keyword>${KEYWORDS})`;
  const nodes = [];
  let end = 0;
  for (const { 0: found, index, groups } of text.matchAll(new RegExp(parts, "g"))) {
    const kind = Object.keys(groups).find((group) => groups[group] !== undefined);
    nodes.push(text.slice(end, index), h("span", { class: `code-${kind}`, textContent: found }));
    end = index + found.length;
  }
  nodes.push(text.slice(end));
  return nodes;
}
