// The server's interface: JSON and pictures, each request with the token from the page's own address.

/** This tab, however often it is loaded: undo takes back what was answered here. */
export const page = (sessionStorage["clew-page"] ??= crypto.randomUUID?.() ?? String(Math.random()));

/** Who answers: the name that was given on this machine, kept with every answer. */
export const author = () => ({ page, name: localStorage.getItem("clew-name") ?? "" });

const token = new URLSearchParams(location.search).get("token") ?? "";

/** The server answered, and the answer is no. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error ?? `the server answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

/** There was no answer. */
export class Gone extends Error {}

const root = new URL(".", location.href).pathname; // the page may lie below a path of another server

const below = (path) => root + path.replace(/^\//, "");

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(below(path), { ...options, headers: { "X-Clew-Token": token, ...options?.headers } });
  } catch {
    throw new Gone("the server does not answer");
  }
  if (reply.ok) return reply;
  throw new Refused(reply.status, await reply.json().catch(() => null));
}

export const getJson = async (path) => (await ask(path)).json();

export async function postFile(path, file) {
  return (await ask(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file })).json();
}

export const getBlob = async (path) => (await ask(path)).blob();

export async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** An address that the browser opens by itself: the stream of events. */
export const withToken = (path) => `${below(path)}?token=${encodeURIComponent(token)}&page=${page}`;

/** A file to download, with the name that the server gives it. */
export async function getFile(path) {
  const reply = await ask(path);
  const name = reply.headers.get("Content-Disposition")?.match(/filename="([^"]+)"/)?.[1] ?? "download";
  return { name, blob: await reply.blob(), isLearned: reply.headers.get("X-Clew-Learned") !== "no" };
}

/** Let the browser keep a file. */
export function saveFile({ name, blob }) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
