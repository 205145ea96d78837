// One answer being written: reads the stream into a message, and takes its times.

import { streamChat } from "./api.js";

const SAVE_EVERY = 1000; // ms

export class Generation {
  #controller = new AbortController();
  #hooks;
  #frame = 0;
  #saved = performance.now();

  /**
   * `message` is the answer to fill. `hooks.changed()` is called at most once a frame while it grows, `hooks.save()`
   * about once a second, `hooks.done()` at its end.
   */
  constructor(message, hooks) {
    this.message = message;
    this.started = performance.now();
    this.#hooks = hooks;
  }

  get elapsed() {
    return performance.now() - this.started;
  }

  stop() {
    this.#controller.abort();
  }

  async run(body, key) {
    const { message } = this;
    try {
      for await (const chunk of streamChat(body, key, this.#controller.signal)) this.#take(chunk);
      message.finish ??= "stop";
    } catch (error) {
      if (this.#controller.signal.aborted) message.finish = "stopped";
      else message.error = { text: error.message, status: error.status ?? 0 };
    }
    cancelAnimationFrame(this.#frame);
    this.#closeThinking();
    if (message.timing) message.timing.total = this.elapsed;
    delete message.running;
    this.#hooks.done();
  }

  #take({ choices, usage, model }) {
    const { message } = this;
    if (model) message.model = model;
    if (usage) message.usage = usageOf(usage);
    for (const { delta = {}, finish_reason: finish } of choices ?? []) {
      if (delta.reasoning_content || delta.content || delta.tool_calls) message.timing ??= { first: this.elapsed };
      if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
      if (delta.content || delta.tool_calls) this.#closeThinking();
      if (delta.content) message.content += delta.content;
      for (const part of delta.tool_calls ?? []) addCall(message, part);
      if (finish) message.finish = finish;
    }
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#hooks.changed();
    });
    if (performance.now() - this.#saved > SAVE_EVERY) {
      this.#saved = performance.now();
      this.#hooks.save();
    }
  }

  #closeThinking() {
    if (this.message.reasoning) this.message.timing.thinking ??= this.elapsed - this.message.timing.first;
  }
}

function addCall(message, { index = 0, id, function: part = {} }) {
  message.calls ??= [];
  const call = (message.calls[index] ??= { id: "", name: "", arguments: "" });
  if (id) call.id = id;
  call.name += part.name ?? "";
  call.arguments += part.arguments ?? "";
}

function usageOf(usage) {
  return {
    prompt: usage.prompt_tokens ?? 0,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
    completion: usage.completion_tokens ?? 0,
  };
}

/** Tokens a second from the first to the last one; null where there is nothing to divide. */
export function speed({ usage, timing }) {
  const seconds = timing ? (timing.total - timing.first) / 1000 : 0;
  return usage && usage.completion > 1 && seconds > 0 ? (usage.completion - 1) / seconds : null;
}
