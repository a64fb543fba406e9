/** Requests to the server that sent this page. Credentials go out in one header. */

import { toJson } from './json';
import { authorizationNow, refuse } from './session';

export type Query = Record<string, string | number | undefined>;

/** Requests that change something. */
const CHANGES = /^(PUT|DELETE) |^POST \/(jobs|groups|datasets|snapshots(\/\d+\/restore)?)$/;

/** Statuses of a server that is busy, or that a proxy does not reach. */
const PASSING = [429, 502, 503, 504];

/** An answer that is an error, or no answer: `kind` is the server's, `away` or `redirected`. */
export class RequestError extends Error {
  /** Whether what failed is asked for again, without a person. */
  isAskedAgain = false;
  /** Whether it was to change something. */
  isChange = false;
  /** Whether signing in, or signing in again, may help. */
  wantsSignIn = false;

  constructor(
    readonly kind: string,
    readonly status: number,
    message: string,
    /** Milliseconds after which the server wants to be asked again. */
    readonly retryAfter?: number,
  ) {
    super(message);
    this.name = 'RequestError';
  }

  /** Whether the same request may succeed a moment later. */
  get isPassing(): boolean {
    return this.kind === 'away' || PASSING.includes(this.status);
  }

  /** What a person can do about it, in a sentence. */
  get remedy(): string {
    if (this.isAskedAgain) return 'This page asks again until the server answers.';
    if (this.isPassing) return 'Try again in a moment.';
    if (this.kind === 'redirected') return 'Load this page again: a sign-in at the proxy may have ended.';
    if (this.status === 401) return 'Sign in again, with another name, password or key.';
    if (this.isChange && this.status === 403) return 'Ask its owner, or an admin, for that right.';
    if (this.isChange && this.status < 500) return '';
    if (this.status === 403) return 'Sign in as a user who may read it, or ask its owner for the right to read.';
    if (this.status === 404 || this.status === 410) return 'Look for it in the folder above: it was moved or deleted, or the address has an error.';
    if (this.status === 413) return 'Select less of it, or zoom in.';
    return 'The sentence above is the server’s. If it does not help, tell the operator.';
  }
}

/** Milliseconds after which a server that did not answer is asked again, and the most seconds that it may ask to wait. */
const RETRY = 2000;
const MAX_WAIT = 120;

export function basic(name: string, password: string): string {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** The URL of a request, relative to the page, so that a proxy may serve it below a path. */
export function urlOf(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const parameters = given.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`);
  const base = document.baseURI.replace(/[#?].*$/, '').replace(/[^/]*$/, '');
  return `${base}${path.replace(/^\//, '')}${parameters.length > 0 ? '?' : ''}${parameters.join('&')}`;
}

export interface RequestOptions {
  accept?: string;
  signal?: AbortSignal | undefined;
  method?: string;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as they are. */
  bytes?: ArrayBuffer;
  authorization?: string;
}

/** Sends a request; raises `RequestError` for an error. An abort is raised as it is. */
export async function send(path: string, query: Query = {}, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? 'application/json' };
  const credentials = options.authorization ?? authorizationNow();
  if (credentials !== undefined) headers['Authorization'] = credentials;
  if (options.body !== undefined) headers['Content-Type'] = 'application/json';
  if (options.bytes !== undefined) headers['Content-Type'] = 'application/octet-stream';
  let answer: Response;
  try {
    answer = await fetch(urlOf(path, query), {
      method: options.method ?? 'GET',
      headers,
      credentials: 'omit',
      redirect: 'manual',
      signal: options.signal ?? null,
      body: options.bytes ?? (options.body === undefined ? null : toJson(options.body)),
    });
  } catch (error) {
    throw awayIf(!(error instanceof DOMException && error.name === 'AbortError'), error);
  }
  if (answer.type === 'opaqueredirect') {
    throw new RequestError('redirected', 0, 'The server, or a proxy before it, sends this page elsewhere for its data. It does not go there.');
  }
  if (answer.ok) return answer;
  const wantsSignIn = options.authorization === undefined && (answer.status === 401 || (answer.status === 403 && credentials === undefined));
  if (wantsSignIn && credentials !== undefined) refuse(credentials);
  throw Object.assign(await errorOf(answer), { isChange: CHANGES.test(`${options.method ?? 'GET'} ${path}`), wantsSignIn });
}

/** Calls `load` until it succeeds, or fails by an error that will not pass, which is raised; `onWait` is told of each that may. */
export async function untilAnswered<T>(load: () => Promise<T>, signal: AbortSignal | undefined, onWait?: (error: RequestError) => void): Promise<T> {
  for (;;) {
    try {
      return await load();
    } catch (error) {
      if (!(error instanceof RequestError) || !error.isPassing || signal?.aborted) throw error;
      error.isAskedAgain = true;
      onWait?.(error);
      await pause(error.retryAfter ?? RETRY, signal);
    }
  }
}

/** Waits so many milliseconds; an abort is raised at once. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(new DOMException('Nobody waits any more.', 'AbortError'));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, milliseconds);
    if (signal?.aborted) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
  });
}

export async function sendJson<T>(path: string, query: Query = {}, options: RequestOptions = {}): Promise<T> {
  return received((await send(path, query, options)).json() as Promise<T>);
}

export async function sendBinary(path: string, query: Query = {}, options: RequestOptions = {}): Promise<ArrayBuffer> {
  return received((await send(path, query, { ...options, accept: 'application/octet-stream' })).arrayBuffer());
}

/** Waits for the body of an answer, which may be cut. */
async function received<T>(body: Promise<T>): Promise<T> {
  return body.catch((error: unknown) => {
    throw awayIf(error instanceof TypeError || error instanceof SyntaxError, error);
  });
}

function awayIf(isAway: boolean, error: unknown): unknown {
  return isAway ? new RequestError('away', 0, 'The server does not answer.') : error;
}

async function errorOf(answer: Response): Promise<RequestError> {
  const seconds = Number(answer.headers.get('Retry-After') ?? NaN);
  const retryAfter = seconds > 0 ? 1000 * Math.min(seconds, MAX_WAIT) : undefined;
  try {
    const { error } = (await answer.json()) as { error: { kind: string; message: string } };
    return new RequestError(error.kind, answer.status, error.message, retryAfter);
  } catch {
    return new RequestError('unknown', answer.status, `The server answered ${answer.status} ${answer.statusText}.`, retryAfter);
  }
}

/** The name of whom nobody signed in as, on a server with users. */
export const ANONYMOUS = 'anonymous';

export interface About {
  username: string;
  isadmin: boolean;
  /** Whether the server changes nothing. */
  read_only?: boolean;
  hsparse_version: string;
  /** The URL of the issuer at which the explorer signs people in. */
  sign_in_issuer?: string;
}
