/**
 * The session: who is signed in, and whether the page asks for it. Credentials are in this page's memory alone. The
 * tab's storage has the name and the way, so that a page that is loaded again can ask for the same user.
 */

/** How somebody signed in. */
export type Way = 'password' | 'key' | 'issuer';

/** Whose credentials the page has lost, or may lose. */
export interface Login {
  user: string;
  way: Way;
}

/** Why the page asks to sign in: it was loaded again, the server refuses the credentials, or a person wants to. */
export type Reason = 'loaded' | 'refused' | 'wanted';

interface Session extends Login {
  authorization: string;
  /** Whether the server has refused the credentials that it took before. */
  isRefused: boolean;
}

let session: Session | undefined;
let last: Login | undefined = remembered();
let asking: Reason | undefined = last === undefined ? undefined : 'loaded';
let signIns = 0;
let users = 0;

const listeners = new Set<() => void>();
const userListeners = new Set<() => void>();

/** Calls `listener` after each change of the session; returns what ends that. */
export function onSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Calls `listener` when another user, or nobody, takes the place of the one that was signed in; returns what ends that. */
export function onUser(listener: () => void): () => void {
  userListeners.add(listener);
  return () => userListeners.delete(listener);
}

/** Returns the value of the header `Authorization`, undefined if nobody is signed in. */
export function authorizationNow(): string | undefined {
  return session?.authorization;
}

/** Says how somebody is signed in. */
export function signedInBy(): Way | undefined {
  return session?.way;
}

/** Says why the page asks to sign in, undefined if it does not. */
export function askingNow(): Reason | undefined {
  return asking;
}

/** Says whether the server refuses the credentials of who is signed in. */
export function isRefusedNow(): boolean {
  return session?.isRefused === true;
}

/** Returns who was signed in last in this tab and did not sign out. */
export function lastLogin(): Login | undefined {
  return last;
}

/** A number that is another one after each sign-in and sign-out. */
export function signInsNow(): number {
  return signIns;
}

/** A number that is another one when another user, or nobody, is signed in. */
export function usersNow(): number {
  return users;
}

export function signIn(authorization: string, login: Login): void {
  put({ authorization, ...login, isRefused: false });
}

export function signOut(): void {
  put(undefined);
}

/** Asks to sign in. */
export function ask(reason: Reason): void {
  asking = reason;
  tell();
}

/** Asks no more; a page that was loaded again goes on without anybody. */
export function stopAsking(): void {
  if (asking === 'loaded') remember(undefined);
  asking = undefined;
  tell();
}

/** Notes that the server refuses credentials that it took before; asks for others, once. */
export function refuse(authorization: string): void {
  if (session === undefined || session.authorization !== authorization || session.isRefused) return;
  session = { ...session, isRefused: true };
  ask('refused');
}

function put(next: Session | undefined): void {
  const isOther = next?.user !== session?.user;
  session = next;
  remember(next);
  asking = undefined;
  signIns += 1;
  if (isOther) users += 1;
  tell();
  if (isOther) for (const listener of userListeners) listener();
}

function tell(): void {
  for (const listener of listeners) listener();
}

function remember(login: Login | undefined): void {
  last = login === undefined ? undefined : { user: login.user, way: login.way };
  if (last === undefined) storage()?.removeItem(place());
  else storage()?.setItem(place(), JSON.stringify(last));
}

function remembered(): Login | undefined {
  const text = storage()?.getItem(place());
  return text == null ? undefined : (JSON.parse(text) as Login);
}

/** Servers below several paths of one proxy have the same storage. */
function place(): string {
  return `hsparse signed in at ${location.pathname}`;
}

/** The tab's storage; undefined where the browser refuses it, as with all cookies blocked. */
function storage(): Storage | undefined {
  try {
    return sessionStorage;
  } catch (error) {
    if (error instanceof DOMException) return undefined;
    throw error;
  }
}
