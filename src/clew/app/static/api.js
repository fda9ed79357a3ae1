// The server's interface: JSON and pictures, each request with the token from the page's own address.

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

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(path, { ...options, headers: { "X-Clew-Token": token, ...options?.headers } });
  } catch {
    throw new Gone("the server does not answer");
  }
  if (reply.ok) return reply;
  throw new Refused(reply.status, await reply.json().catch(() => null));
}

export const getJson = async (path) => (await ask(path)).json();

export const getBlob = async (path) => (await ask(path)).blob();

export async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** An address that the browser opens by itself (a download, the stream of events). */
export const withToken = (path) => `${path}?token=${encodeURIComponent(token)}`;
