/** Signing in with a password, a key or at an issuer, again after a reload or a refusal, and out. */

import { type FormEvent, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { type About, ANONYMOUS, basic, RequestError, sendJson } from '../api/client';
import { signInAtIssuer } from '../api/issuer';
import { useSignedIn } from '../api/load';
import { ask, askingNow, isRefusedNow, lastLogin, onSession, type Reason, signIn, signOut, stopAsking, type Way } from '../api/session';
import { Dialog } from './Dialog';
import { ErrorNotice } from './ErrorNotice';

interface Props {
  about: About | undefined;
  error: unknown;
}

export function SignIn({ about, error }: Props) {
  const asking = useSyncExternalStore(onSession, askingNow);
  const isRefused = useSyncExternalStore(onSession, isRefusedNow);
  const signedIn = useSignedIn();
  // A server without users takes everybody, without credentials, for its one user.
  const hasUsers = about?.username === ANONYMOUS;
  const canSignIn = isRefused || (signedIn === undefined && hasUsers);
  return (
    <div className="who">
      {error instanceof RequestError && error.kind === 'away' ? (
        <span role="status" className="away">
          The server does not answer.
        </span>
      ) : (
        <span className="quiet">{about?.username ?? ''}</span>
      )}
      {canSignIn && <button onClick={() => ask(isRefused ? 'refused' : 'wanted')}>Sign in</button>}
      {signedIn !== undefined && <button onClick={signOut}>Sign out</button>}
      {asking !== undefined && canSignIn && (
        <Dialog title="Sign in" close={stopAsking}>
          <Why reason={asking} />
          {about?.sign_in_issuer !== undefined && <IssuerButton issuer={about.sign_in_issuer} />}
          <SignInForm />
        </Dialog>
      )}
    </div>
  );
}

/** Why a page asks by itself. */
function Why({ reason }: { reason: Reason }) {
  const user = lastLogin()?.user;
  if (reason === 'wanted' || user === undefined) return null;
  return (
    <p role="status">
      {reason === 'loaded'
        ? `This page was loaded again, and keeps no passwords and keys: sign in again as ${user}, or cancel to go on without.`
        : `The server does not accept the credentials of ${user} any more: sign in again. What is open stays open for ${user}.`}
    </p>
  );
}

/** Signs in if the server takes the credentials; raises an error else. */
async function enter(authorization: string, way: Way, signal?: AbortSignal): Promise<void> {
  const { username } = await sendJson<About>('/about', {}, { authorization, signal });
  if (username === ANONYMOUS) throw new Error('The server has no such user.');
  signIn(authorization, { user: username, way });
}

interface IssuerProps {
  issuer: string;
}

/** Signs in at an issuer, whose page has a window of its own; who closes the dialog waits for it no more. */
function IssuerButton({ issuer }: IssuerProps) {
  const [waiting, setWaiting] = useState(false);
  const [error, setError] = useState<unknown>();
  const abort = useRef<AbortController>();
  useEffect(() => () => abort.current?.abort(), []);
  const atIssuer = async () => {
    abort.current?.abort();
    const { signal } = (abort.current = new AbortController());
    setWaiting(true);
    setError(undefined);
    try {
      await enter(`Bearer ${await signInAtIssuer(signal)}`, 'issuer', signal);
    } catch (failure) {
      if (signal.aborted) return;
      setWaiting(false);
      setError(failure);
    }
  };
  return (
    <>
      <button onClick={() => void atIssuer()}>Sign in at {hostOf(issuer)}</button>
      {waiting && <p role="status">Waiting for the window in which you sign in…</p>}
      {error !== undefined && <ErrorNotice error={error} />}
    </>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}

function SignInForm() {
  const before = lastLogin();
  const [name, setName] = useState(before?.way === 'password' ? before.user : '');
  const [secret, setSecret] = useState('');
  const [isKey, setIsKey] = useState(before?.way === 'key');
  const [error, setError] = useState<unknown>();
  const field = useRef<HTMLInputElement>(null);
  // After the dialog has given the focus to its first field.
  useEffect(() => {
    if (lastLogin() !== undefined) field.current?.focus();
  }, []);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await enter(isKey ? `Bearer ${secret.trim()}` : basic(name, secret), isKey ? 'key' : 'password');
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)} autoComplete="off">
      <fieldset>
        <legend className="quiet">With</legend>
        <label>
          <input type="radio" name="way" checked={!isKey} onChange={() => setIsKey(false)} /> name and password
        </label>
        <label>
          <input type="radio" name="way" checked={isKey} onChange={() => setIsKey(true)} /> key or token
        </label>
      </fieldset>
      {!isKey && (
        <label>
          Name <input value={name} required autoComplete="username" onChange={(event) => setName(event.target.value)} />
        </label>
      )}
      <label>
        {isKey ? 'Key or token' : 'Password'}{' '}
        <input type="password" value={secret} required ref={field} autoComplete="off" onChange={(event) => setSecret(event.target.value)} />
      </label>
      {error !== undefined && <ErrorNotice error={error} />}
      <div className="bar">
        <button>Sign in</button>
        <button type="button" onClick={stopAsking}>
          Cancel
        </button>
      </div>
      <p className="quiet">It is forgotten when this page is closed or loaded again; this page asks for it then.</p>
    </form>
  );
}
