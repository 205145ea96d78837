// What the user chose: kept in the browser, turned into fields of a request.

import { byId } from "./dom.js";

const KEY = "hy3-settings";
const FIELDS = ["system", "temperature", "topP", "maxTokens", "tools", "key"]; // as text; "" leaves it to the server
const THEMES = ["auto", "light", "dark"];

let values = { effort: "", theme: "auto" };

export function settings() {
  return values;
}

function load() {
  try {
    Object.assign(values, JSON.parse(localStorage.getItem(KEY)));
  } catch {
    // Nothing stored, or storage closed to the page: the defaults.
  }
}

function keep(changes) {
  values = { ...values, ...changes };
  try {
    localStorage.setItem(KEY, JSON.stringify(values));
  } catch {
    // They hold until the page closes.
  }
}

/** The fields of a chat completion request that the settings give. */
export function requestFields() {
  const fields = {};
  if (values.effort) fields.reasoning_effort = values.effort;
  if (values.temperature) fields.temperature = Number(values.temperature);
  if (values.topP) fields.top_p = Number(values.topP);
  if (values.maxTokens) fields.max_tokens = Number(values.maxTokens);
  if (values.tools) fields.tools = JSON.parse(values.tools);
  return fields;
}

/** What is wrong with the text of the tools; "" if nothing is. */
function toolsProblem(text) {
  if (!text.trim()) return "";
  try {
    const tools = JSON.parse(text);
    const sound = (tool) => tool?.type === "function" && typeof tool.function?.name === "string";
    if (Array.isArray(tools) && tools.every(sound)) return "";
    return 'A list of {"type": "function", "function": {"name": …, "parameters": …}} is needed.';
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

function applyTheme() {
  document.documentElement.dataset.theme = values.theme;
  const button = byId("theme");
  const label = `Colours: ${values.theme === "auto" ? "as the system" : values.theme}`;
  button.title = label;
  button.setAttribute("aria-label", label);
  button.querySelector("use").setAttribute("href", `#icon-theme-${values.theme}`);
}

export function openSettings() {
  const form = byId("settings-form");
  for (const name of FIELDS) form.elements[name].value = values[name] ?? "";
  form.elements.tools.setCustomValidity("");
  byId("settings").showModal();
}

/** `changed` is called when new settings were saved. */
export function startSettings(changed) {
  load();
  applyTheme();
  byId("effort").value = values.effort;
  byId("effort").onchange = ({ target }) => keep({ effort: target.value });
  byId("theme").onclick = () => {
    keep({ theme: THEMES[(THEMES.indexOf(values.theme) + 1) % THEMES.length] });
    applyTheme();
  };
  byId("open-settings").onclick = openSettings;
  const form = byId("settings-form");
  const { tools } = form.elements;
  tools.oninput = () => tools.setCustomValidity(toolsProblem(tools.value));
  form.onsubmit = ({ submitter }) => {
    if (submitter?.value === "cancel") return;
    keep(Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value.trim()])));
    changed();
  };
}
