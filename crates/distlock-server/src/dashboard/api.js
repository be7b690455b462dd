// Asking the service. The token, where one is needed, lives in this tab and nowhere else.

const base = new URL("api/v1/", document.baseURI);
const me = new URL("dashboard/me", document.baseURI);
const TOKEN = "distlock-token";
const PATIENCE_MS = 12_000;

/** The service answered, and the answer is no. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `status ${status}`);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

function headers(more) {
  const secret = token.get();
  return secret ? { ...more, authorization: `Bearer ${secret}` } : more;
}

async function ask(url, method = "GET", body = undefined) {
  const request = { method, headers: headers({}), signal: AbortSignal.timeout(PATIENCE_MS) };
  if (body) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const response = await fetch(url, request);
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response.status === 204 ? undefined : response.json();
}

const lock = (key, rest = "") => new URL(`locks/${encodeURIComponent(key)}${rest}`, base);

/** What the bearer of this token may do. */
export const whoami = () => ask(me);
export const summary = () => ask(new URL("summary", base));
export const one = (key) => ask(lock(key));
export const history = (key, limit) => ask(lock(key, `/history?limit=${limit}`));
export const breakHold = (key, fence, reason) =>
  ask(lock(key, "/break"), "POST", { fence, reason });

/** One page of the locks. */
export function page(cursor) {
  const url = new URL("locks", base);
  if (cursor) url.searchParams.set("cursor", cursor);
  return ask(url);
}

/** Events as they come, until the stream ends. EventSource cannot send a token; this can. */
export async function* events(after, signal) {
  const more = after ? { "last-event-id": after } : {};
  const response = await fetch(new URL("events", base), { headers: headers(more), signal });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      yield parse(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function parse(block) {
  const event = { name: "hello", id: undefined, data: {} };
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6));
  }
  return event;
}
