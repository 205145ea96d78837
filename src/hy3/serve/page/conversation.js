// A conversation is a tree of messages: editing a question or retrying an answer adds a branch beside the old one.
// What is shown and sent is the path from the root to `leaf`.

const ROLES = new Set(["user", "assistant", "tool"]);
const TITLE_LENGTH = 60;

export function newConversation() {
  const now = Date.now();
  return { id: crypto.randomUUID?.() ?? randomId(), title: "", created: now, updated: now, leaf: null, messages: [] };
}

/** For pages without a secure context, where there is no randomUUID. */
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");
}

/** The messages from the first to the one with the id `leaf`. */
export function path(conversation, leaf = conversation.leaf) {
  const messages = new Map(conversation.messages.map((message) => [message.id, message]));
  const found = [];
  for (let message = messages.get(leaf); message; message = messages.get(message.parent)) found.push(message);
  return found.reverse();
}

export function siblings(conversation, message) {
  return conversation.messages.filter((other) => other.parent === message.parent);
}

/** Adds a message after `parent` and makes it the end of what is shown. */
export function append(conversation, parent, fields) {
  const id = 1 + conversation.messages.reduce((most, message) => Math.max(most, message.id), 0);
  const message = { id, parent, created: Date.now(), ...fields };
  conversation.messages.push(message);
  conversation.leaf = id;
  conversation.updated = message.created;
  if (!conversation.title && message.role === "user") conversation.title = titleOf(message.content);
  return message;
}

function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > TITLE_LENGTH ? line.slice(0, TITLE_LENGTH - 1).trimEnd() + "…" : line;
}

/** Shows the branch through `message`, down to its newest end. */
export function select(conversation, message) {
  let leaf = message.id;
  for (const other of conversation.messages) if (other.parent === leaf) leaf = newest(conversation, leaf);
  conversation.leaf = leaf;
}

function newest(conversation, id) {
  return conversation.messages.findLast((message) => message.parent === id)?.id ?? id;
}

/** Removes a message and all that follows from it; a branch beside it is shown instead, if there is one. */
export function remove(conversation, message) {
  const gone = new Set([message.id]);
  for (const other of conversation.messages) if (gone.has(other.parent)) gone.add(other.id); // children come later
  conversation.messages = conversation.messages.filter((other) => !gone.has(other.id));
  const beside = siblings(conversation, message).at(-1);
  if (beside) select(conversation, beside);
  else conversation.leaf = message.parent;
}

/** The calls in the path that have no result yet: those of its last answer. */
export function openCalls(conversation) {
  const messages = path(conversation);
  const last = messages.findLastIndex((message) => message.role === "assistant");
  const answered = new Set(messages.slice(last + 1).map((message) => message.callId));
  return (messages[last]?.calls ?? []).filter((call) => !answered.has(call.id));
}

/** What the server is sent for an answer after the message `leaf`. */
export function requestMessages(conversation, leaf, system) {
  const sent = system ? [{ role: "system", content: system }] : [];
  for (const message of path(conversation, leaf)) {
    if (message.role === "tool") sent.push({ role: "tool", tool_call_id: message.callId, content: message.content });
    else if (message.role === "user") sent.push({ role: "user", content: message.content });
    else if (message.content || message.calls?.length) sent.push(answerOf(message));
  }
  return sent;
}

function answerOf(message) {
  const sent = { role: "assistant", content: message.content };
  if (message.reasoning) sent.reasoning_content = message.reasoning;
  if (message.calls?.length) {
    const toCall = ({ id, name, arguments: given }) => ({ id, type: "function", function: { name, arguments: given } });
    sent.tool_calls = message.calls.map(toCall);
  }
  return sent;
}

export function exportFile(conversations) {
  return JSON.stringify({ format: "hy3-conversations", version: 1, conversations }, null, 1);
}

/** The conversations in a file's text. Throws where it is not one of ours; takes over nothing it does not know. */
export function importFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON. Choose one that was exported here.");
  }
  if (file?.format !== "hy3-conversations" || !Array.isArray(file.conversations)) {
    throw new Error("The file holds no conversations. Choose one that was exported here.");
  }
  return file.conversations.map(checked);
}

function checked(given, index) {
  const fail = (what) => {
    throw new Error(`Conversation ${index + 1} of the file ${what}. Nothing was imported.`);
  };
  if (typeof given?.title !== "string" || !Array.isArray(given.messages)) fail("has no title or no messages");
  const conversation = { ...newConversation(), title: given.title, created: time(given.created), updated: time(given.updated) };
  const known = new Set([null]);
  for (const message of given.messages) {
    const sound = ROLES.has(message?.role) && typeof message.content === "string" && Number.isSafeInteger(message.id);
    if (!sound || known.has(message.id) || !known.has(message.parent)) fail("has a message that is not sound");
    known.add(message.id);
    conversation.messages.push(checkedMessage(message));
  }
  conversation.leaf = known.has(given.leaf) ? given.leaf : (conversation.messages.at(-1)?.id ?? null);
  return conversation;
}

function time(value) {
  return Number.isFinite(value) ? value : Date.now();
}

function checkedMessage({ id, parent, role, content, created, reasoning, calls, callId, usage, timing, finish }) {
  const message = { id, parent, role, content, created: time(created) };
  if (typeof reasoning === "string") message.reasoning = reasoning;
  if (typeof callId === "string") message.callId = callId;
  if (typeof finish === "string") message.finish = finish;
  if (Array.isArray(calls)) {
    message.calls = calls.map((call) => ({ id: `${call?.id}`, name: `${call?.name}`, arguments: `${call?.arguments}` }));
  }
  if (allNumbers(usage, ["prompt", "cached", "completion"])) message.usage = usage;
  if (allNumbers(timing, ["first", "total"])) message.timing = timing;
  return message;
}

function allNumbers(given, names) {
  return names.every((name) => Number.isFinite(given?.[name]));
}
