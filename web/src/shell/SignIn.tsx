/** Signing in with a password or a key, and out. What is typed is kept in this page's memory, and nowhere else. */

import { type FormEvent, useRef, useState } from 'react';
import { type About, basic, RequestError, sendJson, setAuthorization } from '../api/client';
import { useSignedIn } from '../api/load';
import { ErrorNotice } from './ErrorNotice';

interface Props {
  about: About | undefined;
  error: unknown;
}

export function SignIn({ about, error }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const signedIn = useSignedIn();
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
        <button onClick={() => dialog.current?.showModal()}>Sign in</button>
      )}
      <dialog ref={dialog} aria-labelledby="signInTitle">
        <SignInForm close={() => dialog.current?.close()} />
      </dialog>
    </div>
  );
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
      if (username === 'anonymous') throw new Error('The server has no such user.');
    } catch (failure) {
      setError(failure);
      return;
    }
    setError(undefined);
    setName('');
    setSecret('');
    setAuthorization(authorization);
    close();
  };
  return (
    <form onSubmit={(event) => void submit(event)} autoComplete="off">
      <h2 id="signInTitle">Sign in</h2>
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
