/** Loading for components: one request at a time, cancelled when it is not wanted any more. */

import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import { untilAnswered } from './client';
import { onSession, signedInBy, signInsNow, usersNow, type Way } from './session';

export interface Loaded<T> {
  value: T | undefined;
  error: unknown;
  loading: boolean;
  /** Whether the value or the error is that of the key, and not that of the last one. */
  isCurrent: boolean;
  /** Asks again, and shows the last answer meanwhile. */
  reload: () => void;
  /** Puts another answer in the place of the last one. */
  change: (next: (value: T) => T) => void;
}

/** A number that changes when another user, or nobody, is signed in. */
export function useUsers(): number {
  return useSyncExternalStore(onSession, usersNow);
}

/** How somebody is signed in, undefined if nobody is. */
export function useSignedIn(): Way | undefined {
  return useSyncExternalStore(onSession, signedInBy);
}

interface State<T> {
  /** What is loaded, and for whom: the number of users before. */
  key?: string;
  user?: number;
  value?: T;
  error?: unknown;
  loading: boolean;
}

const NOTHING: State<never> = { loading: true };

/**
 * Calls `load` for each new `key`, and again after a sign-in; without a key there is nothing to load.
 * The last answer stays until the next one is there, but not for another user; a server that is away or busy is asked until it answers.
 */
export function useLoad<T>(key: string | undefined, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<State<T>>(NOTHING);
  const [attempt, setAttempt] = useState(0);
  const user = useUsers();
  const signIns = useSyncExternalStore(onSession, signInsNow);
  useEffect(() => {
    if (key === undefined) return undefined;
    const abort = new AbortController();
    setState((old) => {
      if (old.user !== user) return { user, loading: true };
      return old.key === key ? { ...old, loading: true } : { ...old, error: undefined, loading: true };
    });
    const onWait = (error: unknown) => setState((old) => ({ ...old, error, loading: false }));
    untilAnswered(() => load(abort.signal), abort.signal, onWait).then(
      (value) => {
        if (!abort.signal.aborted) setState({ key, user, value, loading: false });
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setState({ key, user, error, loading: false });
      },
    );
    return () => abort.abort();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key stands for what is loaded
  }, [key, attempt, signIns]);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  const change = useCallback((next: (value: T) => T) => {
    setState((old) => (old.value === undefined ? old : { ...old, value: next(old.value) }));
  }, []);
  const { value, error, loading, key: loaded } = state.user === user ? state : NOTHING;
  return { value, error, loading, isCurrent: key !== undefined && loaded === key, reload, change };
}
