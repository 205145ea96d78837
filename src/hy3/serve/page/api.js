// The server, as this page uses it: its model and its streams of answers. Addresses are relative, so that the page
// also works below a path of another server.

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // 0: no answer at all
  }
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Is it running?");
  }
  if (!response.ok) throw new ServerError(await errorText(response), response.status);
  return response;
}

async function errorText(response) {
  const text = await response.text().catch(() => "");
  try {
    const { error, detail } = JSON.parse(text);
    return `${error?.message ?? detail ?? text}`;
  } catch {
    return `The server answered ${response.status} ${response.statusText}. ${text.slice(0, 300)}`;
  }
}

/** {id, ctx}: the served model, and the tokens its context holds where the server says so. */
export async function servedModel(key) {
  const response = await request("v1/models", { headers: headers(key) });
  const model = (await response.json()).data?.[0];
  if (!model) throw new ServerError("The server lists no model.");
  return { id: model.id, ctx: model.max_model_len ?? null };
}

/** The chunks of a streamed chat completion, as they come. */
export async function* streamChat(body, key, signal) {
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message ?? "The server stopped the answer.");
    yield chunk;
  }
  throw new ServerError("The connection ended before the answer did.");
}

/** The data of the server-sent events in a stream of bytes. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = ""; // the line that has not ended yet
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (held + value).split("\n");
      held = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection to the server broke.");
  } finally {
    reader.cancel().catch(() => {}); // the server frees its slot when nobody reads on
  }
}
