// The page: which conversation is shown, what its buttons do, and the answers being written.

import { ServerError, servedModel } from "./api.js";
import { append, exportFile, importFile, newConversation, openCalls, path, remove, requestMessages, select, siblings } from "./conversation.js";
import { announce, byId, copyText, download, notify, sends } from "./dom.js";
import { Follower } from "./follow.js";
import { Generation } from "./generation.js";
import { AnswerView, editor, fit, userView } from "./messages.js";
import { openSettings, requestFields, settings, startSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";

const LOOK_AGAIN = 3000; // ms between looks for a server that is away

const store = new Store();
const generations = new Map(); // id of a conversation -> the answer being written in it
const prompt = byId("prompt");
const follower = new Follower(byId("scroller"), byId("to-end"));
let conversations = [];
let current = newConversation(); // joins `conversations` with its first message
let views = new Map(); // id of an answer on the page -> its view
let model = null; // {id, ctx} once the server has said so

const sidebar = new Sidebar({
  rename(conversation, title) {
    conversation.title = title;
    save(conversation);
    showFrame();
  },
  export(conversation) {
    const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40);
    download(`${name || "conversation"}.json`, exportFile([conversation]));
  },
  remove: removeConversation,
});

// --- what is shown

function show() {
  for (const view of views.values()) view.close();
  views = new Map();
  const messages = path(current);
  const drawn = [];
  let answer = null;
  for (const message of messages) {
    if (message.role === "tool") answer?.showResult(message.callId, message.content);
    else if (message.role === "user") drawn.push(userView(message, siblings(current, message)));
    else {
      const generation = generations.get(current.id);
      answer = new AnswerView(message, siblings(current, message), generation?.message === message ? generation : null);
      views.set(message.id, answer);
      drawn.push(answer.element);
    }
  }
  byId("messages").replaceChildren(...drawn);
  const calls = openCalls(current);
  if (calls.length && !generations.has(current.id)) answer.askResults(calls, sendResults);
  showFrame();
}

/** Everything around the messages. */
function showFrame() {
  const answering = generations.has(current.id);
  document.title = current.title ? `${current.title} · hy3` : "hy3";
  byId("title").textContent = current.title || "New conversation";
  byId("welcome").hidden = current.messages.length > 0;
  byId("stop").hidden = !answering;
  byId("send").hidden = answering;
  byId("context").textContent = contextUse();
  sidebar.show(conversations, current.id, new Set(generations.keys()));
}

function contextUse() {
  const usage = path(current).findLast((message) => message.usage)?.usage;
  const used = usage ? usage.prompt + usage.completion : 0;
  if (!used && !model?.ctx) return "";
  return `${used.toLocaleString()}${model?.ctx ? ` / ${model.ctx.toLocaleString()}` : ""}`;
}

/** Shows the conversation that the address names, or an empty one. */
function route() {
  const id = location.hash.slice(1);
  const found = conversations.find((conversation) => conversation.id === id);
  if (found && found === current) return;
  current = found ?? newConversation();
  show();
  follower.toEnd();
  if (matchMedia("(pointer: fine)").matches) prompt.focus();
}

// --- keeping

/** Waits for a change of what is stored, and shows why it failed. */
async function kept(change) {
  try {
    await change;
  } catch (error) {
    notify(error.message);
  }
}

const save = (conversation) => kept(store.put(conversation));

async function removeConversation(conversation) {
  generations.get(conversation.id)?.stop();
  conversations = conversations.filter((other) => other !== conversation);
  await kept(store.remove(conversation.id));
  if (conversation === current) location.hash = "";
  showFrame();
  const undo = async () => {
    conversations.push(conversation);
    await save(conversation);
    showFrame();
  };
  notify(`“${conversation.title}” was deleted.`, { label: "Undo", run: undo });
}

async function importConversations(file) {
  const imported = importFile(await file.text());
  conversations = [...conversations, ...imported];
  showFrame();
  notify(imported.length === 1 ? "One conversation was imported." : `${imported.length} conversations were imported.`);
  for (const conversation of imported) await store.put(conversation);
}

/** Another tab has written the conversation `id`: takes over what it knows, except for what is being answered here. */
async function reload(id) {
  const stored = new Map((await store.all()).map((conversation) => [conversation.id, conversation]));
  for (const own of conversations) if (generations.has(own.id)) stored.set(own.id, own);
  conversations = [...stored.values()];
  current = stored.get(current.id) ?? current;
  if (id === current.id && !generations.has(id) && !document.querySelector(".editor")) show();
  else showFrame();
}

// --- answers

function ask(conversation, text, parent = conversation.leaf) {
  append(conversation, parent, { role: "user", content: text });
  if (!conversations.includes(conversation)) conversations.push(conversation);
  if (conversation === current && location.hash.slice(1) !== conversation.id) location.hash = conversation.id;
  answer(conversation, conversation.leaf);
}

/** Has the model write an answer after the message `parent`. */
function answer(conversation, parent) {
  if (generations.has(conversation.id)) return;
  byId("toasts").replaceChildren(); // what they could undo is built upon now
  const body = { messages: requestMessages(conversation, parent, settings().system), ...requestFields() };
  const message = append(conversation, parent, { role: "assistant", content: "", running: true });
  const generation = new Generation(message, {
    changed: () => views.get(message.id) && conversation === current && follower.around(() => views.get(message.id).update()),
    save: () => save(conversation),
    done: () => answered(conversation, message),
  });
  generations.set(conversation.id, generation);
  if (conversation === current) {
    show();
    follower.toEnd();
  }
  announce("The answer is being written.");
  save(conversation);
  generation.run(body, settings().key);
}

function answered(conversation, message) {
  generations.delete(conversation.id);
  if (conversations.includes(conversation)) save(conversation);
  if (conversation === current) {
    follower.around(() => {
      views.get(message.id)?.update();
      views.get(message.id)?.finish();
      const calls = openCalls(current);
      if (calls.length) views.get(message.id)?.askResults(calls, sendResults);
    });
  }
  showFrame();
  announce(message.error ? `The answer failed: ${message.error.text}` : "The answer is complete.");
  if (message.error || message.model !== model?.id) lookForServer(); // it may be another one since a restart
}

function sendResults(results) {
  for (const { callId, content } of results) append(current, current.leaf, { role: "tool", callId, content });
  answer(current, current.leaf);
}

function stop() {
  generations.get(current.id)?.stop();
}

// --- what the buttons of a message do

const messageActions = {
  copy: (message) => copyText(message.content).then(() => notify("Copied.")),
  retry(message) {
    if (message.error && !message.content && !message.calls) remove(current, message); // nothing worth a branch
    answer(current, message.parent);
  },
  previous: (message) => step(message, -1),
  next: (message) => step(message, 1),
  settings: () => openSettings(),
  edit(message, element) {
    const { form, field } = editor(message.content, {
      save: (text) => ask(current, text, message.parent),
      cancel: show,
    });
    element.replaceChildren(form);
    fit(field);
    field.focus();
  },
  cut(message) {
    const { messages, leaf } = current;
    remove(current, message);
    save(current);
    show();
    const conversation = current;
    const undo = () => {
      Object.assign(conversation, { messages, leaf });
      save(conversation);
      if (conversation === current) show();
    };
    notify("Deleted from there on.", { label: "Undo", run: undo });
  },
};

function step(message, by) {
  const beside = siblings(current, message);
  const shown = beside[beside.indexOf(message) + by];
  select(current, shown);
  save(current);
  show();
  const buttons = document.querySelector(`article[data-id="${shown.id}"] .branches`).querySelectorAll("button:enabled");
  buttons[by < 0 ? 0 : buttons.length - 1].focus(); // the one that was pressed, unless it was the last step
}

function actOnMessage(event) {
  const button = event.target.closest("[data-action]");
  const action = button?.dataset.action;
  if (action === "copy-code") {
    copyText(button.closest("figure").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } else if (action) {
    const element = button.closest("article");
    const message = current.messages.find(({ id }) => id === Number(element.dataset.id));
    const changes = action !== "copy" && action !== "settings";
    if (changes && generations.has(current.id)) notify("Stop the answer first.");
    else messageActions[action](message, element);
  }
}

// --- the server

/** Asks for the model until there is an answer. */
let looking = null;
async function lookForServer() {
  clearTimeout(looking);
  const label = byId("model");
  try {
    model = await servedModel(settings().key);
    label.textContent = model.id;
    label.className = "up";
  } catch (error) {
    const refused = error instanceof ServerError && error.status;
    label.textContent = error.status === 401 ? "API key needed" : refused ? "Server error" : "Server away";
    label.className = "down";
    if (error.status !== 401) looking = setTimeout(lookForServer, LOOK_AGAIN);
  }
  label.title = label.textContent;
  byId("context").textContent = contextUse();
}

// --- input

function submit(event) {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || generations.has(current.id)) return;
  prompt.value = "";
  fit(prompt);
  ask(current, text);
}

function typed(event) {
  // On a phone's keyboard Enter is the only way to a new line; the button sends.
  if (!sends(event) || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  byId("composer").requestSubmit();
}

function shortcut(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (event.target.closest?.("#sidebar")) sidebar.close();
    else stop();
  }
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    sidebar.search();
  }
}

function startNew() {
  sidebar.close();
  if (location.hash.length > 1) location.hash = "";
  else if (current.messages.length) route();
  prompt.focus();
}

async function start() {
  startSettings(lookForServer);
  byId("composer").onsubmit = submit;
  byId("stop").onclick = stop;
  byId("new").onclick = startNew;
  byId("messages").onclick = actOnMessage;
  byId("export").onclick = () => download("hy3-conversations.json", exportFile(conversations));
  byId("import").onclick = () => byId("import-file").click();
  byId("import-file").onchange = ({ target }) => {
    if (target.files.length) kept(importConversations(target.files[0]));
    target.value = "";
  };
  prompt.onkeydown = typed;
  prompt.oninput = () => fit(prompt);
  addEventListener("keydown", shortcut);
  addEventListener("hashchange", route);
  lookForServer();
  const keeps = await store.open(reload);
  if (!keeps) byId("welcome-note").textContent = "This browser keeps nothing for this page: conversations end with it.";
  conversations.push(...(await store.all()));
  for (const { messages } of conversations) for (const message of messages) endInterrupted(message);
  route();
}

/** An answer that was being written when the page went away ended there. */
function endInterrupted(message) {
  if (!message.running) return;
  delete message.running;
  message.finish = "stopped";
}

start();
