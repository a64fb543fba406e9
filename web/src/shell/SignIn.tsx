/** Signing in with a password, a key or at an issuer, and out. Credentials are in this page's memory, and nowhere else. */

import { type FormEvent, useEffect, useRef, useState } from 'react';
import { type About, ANONYMOUS, basic, RequestError, sendJson, setAuthorization } from '../api/client';
import { signInAtIssuer } from '../api/issuer';
import { useSignedIn } from '../api/load';
import { Dialog } from './Dialog';
import { ErrorNotice } from './ErrorNotice';

interface Props {
  about: About | undefined;
  error: unknown;
}

export function SignIn({ about, error }: Props) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  const signedIn = useSignedIn();
  // A server without users takes everybody, without credentials, for its one user.
  const hasUsers = about?.username === ANONYMOUS;
  return (
    <div className="who">
      {error instanceof RequestError && error.kind === 'away' ? (
        <span role="status" className="away">
          The server does not answer.
        </span>
      ) : (
        <span className="quiet">{about?.username ?? ''}</span>
      )}
      {signedIn !== undefined ? (
        <button onClick={() => setAuthorization(undefined)}>Sign out</button>
      ) : (
        hasUsers && <button onClick={() => setOpen(true)}>Sign in</button>
      )}
      {open && (
        <Dialog title="Sign in" close={close}>
          {about?.sign_in_issuer !== undefined && <IssuerButton issuer={about.sign_in_issuer} close={close} />}
          <SignInForm close={close} />
        </Dialog>
      )}
    </div>
  );
}

interface IssuerProps {
  issuer: string;
  close: () => void;
}

/** Signs in at an issuer, whose page has a window of its own; who closes the dialog waits for it no more. */
function IssuerButton({ issuer, close }: IssuerProps) {
  const [waiting, setWaiting] = useState(false);
  const [error, setError] = useState<unknown>();
  const abort = useRef<AbortController>();
  useEffect(() => () => abort.current?.abort(), []);
  const signIn = async () => {
    abort.current?.abort();
    const { signal } = (abort.current = new AbortController());
    setWaiting(true);
    setError(undefined);
    try {
      setAuthorization(`Bearer ${await signInAtIssuer(signal)}`);
      close();
    } catch (failure) {
      if (signal.aborted) return;
      setWaiting(false);
      setError(failure);
    }
  };
  return (
    <>
      <button onClick={() => void signIn()}>Sign in at {hostOf(issuer)}</button>
      {waiting && <p role="status">Waiting for the window in which you sign in…</p>}
      {error !== undefined && <ErrorNotice error={error} />}
    </>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}

function SignInForm({ close }: { close: () => void }) {
  const [name, setName] = useState('');
  const [secret, setSecret] = useState('');
  const [isKey, setIsKey] = useState(false);
  const [error, setError] = useState<unknown>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const authorization = isKey ? `Bearer ${secret.trim()}` : basic(name, secret);
    try {
      const { username } = await sendJson<About>('/about', {}, { authorization });
      if (username === ANONYMOUS) throw new Error('The server has no such user.');
    } catch (failure) {
      setError(failure);
      return;
    }
    setAuthorization(authorization);
    close();
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
        <input type="password" value={secret} required autoComplete="off" onChange={(event) => setSecret(event.target.value)} />
      </label>
      {error !== undefined && <ErrorNotice error={error} />}
      <div className="bar">
        <button>Sign in</button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </div>
      <p className="quiet">It is forgotten when this page is closed or loaded again.</p>
    </form>
  );
}
