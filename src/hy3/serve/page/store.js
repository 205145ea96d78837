// Where conversations are kept: the browser's IndexedDB. Where that is closed to the page (some private windows),
// they live as long as the page does.

const STORE = "conversations";

export class Store {
  #database = null;
  #channel = null;

  /** `changed(id)` is called when another tab has written a conversation. Returns whether conversations will be kept. */
  async open(changed) {
    try {
      this.#database = await promised(openRequest());
    } catch {
      return false;
    }
    this.#channel = new BroadcastChannel("hy3-conversations");
    this.#channel.onmessage = ({ data }) => changed(data);
    return true;
  }

  async all() {
    return this.#database ? promised(this.#store("readonly").getAll()) : [];
  }

  /** Throws an Error to show when the browser has no room left. */
  async put(conversation) {
    await this.#write(conversation.id, (store) => store.put(conversation));
  }

  async remove(id) {
    await this.#write(id, (store) => store.delete(id));
  }

  async #write(id, change) {
    if (!this.#database) return;
    try {
      const store = this.#store("readwrite");
      change(store);
      store.transaction.commit(); // else it waits for an event that a page being closed no longer handles
      await finished(store.transaction);
    } catch (error) {
      if (error?.name !== "QuotaExceededError") throw error;
      throw new Error("The browser has no room left for conversations. Export and delete some.");
    }
    this.#channel.postMessage(id);
  }

  #store(mode) {
    return this.#database.transaction(STORE, mode).objectStore(STORE);
  }
}

function openRequest() {
  const request = indexedDB.open("hy3", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
  return request;
}

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
}
