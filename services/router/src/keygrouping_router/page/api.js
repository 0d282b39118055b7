// Requests to the router: JSON in and out, problem details as errors, the bearer token where it is wanted.

const TIMEOUT = 15_000;
let token = null;
let ask = null;

/** A request that was answered with an error, or not at all (status 0). */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** `asking(refused)` gives a token, or null if the user has none; used when an answer is 401. */
export function askForToken(asking) {
  ask = asking;
}

export const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** Asks for a token; true if one was given. */
export async function renewToken() {
  const given = await ask?.(token !== null);
  if (given) token = given;
  return Boolean(given);
}

/** {data, etag} of a GET; also of an answer with status 503 that is JSON, such as that of /readyz. */
export async function read(path) {
  const response = await request(path, { headers: authorization() });
  return { data: await response.json(), etag: response.headers.get("ETag") };
}

/** The readiness report, which comes with status 503 while the router starts. */
export async function readiness() {
  const response = await raw("readyz", {});
  return response.status === 503 || response.ok ? response.json() : Promise.reject(await problemOf(response));
}

/** Sends JSON; asks for a token when the answer is 401, and tries again. */
export async function send(method, path, body, etag) {
  for (;;) {
    try {
      const headers = { ...authorization(), "Content-Type": "application/json", ...(etag ? { "If-Match": etag } : {}) };
      const response = await request(path, { method, headers, body: JSON.stringify(body) });
      return { data: await response.json(), etag: response.headers.get("ETag") };
    } catch (problem) {
      if (problem.status !== 401 || !(await renewToken())) throw problem;
    }
  }
}

async function request(path, options) {
  const response = await raw(path, options);
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function raw(path, options) {
  try {
    return await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT), ...options });
  } catch {
    throw new Problem(0, "The router does not answer.");
  }
}

/** The problem that an answer tells of. */
export async function problemOf(response) {
  const detail = await response.json().then((body) => body.detail, () => null);
  return new Problem(response.status, String(detail ?? `The router answered ${response.status}.`));
}
