// Asking the router; the token, if it wants one, is kept for this tab only.

const KEY = "router-token";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

/** Gives the JSON of an answer; throws Refused, or TypeError if the router cannot be reached. */
export async function ask(path, { method = "GET", body } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, {
    method,
    headers,
    cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(15000),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, reason(text) || `${answer.status}`);
  return JSON.parse(text);
}

function reason(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return "";
  }
}
