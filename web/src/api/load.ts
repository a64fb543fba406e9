/** Loading for components: one request at a time, cancelled when it is not wanted any more. */

import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import { isSignedIn, onAuthorization, untilAnswered } from './client';

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

let signIns = 0;
onAuthorization(() => (signIns += 1));

/** A number that changes when somebody signs in or out. */
export function useSignIns(): number {
  return useSyncExternalStore(onAuthorization, () => signIns);
}

export function useSignedIn(): boolean {
  return useSyncExternalStore(onAuthorization, isSignedIn);
}

/**
 * Calls `load` for each new `key`, and again after a sign-in; without a key there is nothing to load.
 * The last answer stays until the next one is there; a server that is away or busy is asked until it answers.
 */
export function useLoad<T>(key: string | undefined, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ key?: string; value?: T; error?: unknown; loading: boolean }>({ loading: true });
  const [attempt, setAttempt] = useState(0);
  const signIn = useSignIns();
  useEffect(() => {
    if (key === undefined) return undefined;
    const abort = new AbortController();
    setState((old) => (old.key === key ? { ...old, loading: true } : { ...old, error: undefined, loading: true }));
    const onWait = (error: unknown) => setState((old) => ({ ...old, error, loading: false }));
    untilAnswered(() => load(abort.signal), abort.signal, onWait).then(
      (value) => {
        if (!abort.signal.aborted) setState({ key, value, loading: false });
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setState({ key, error, loading: false });
      },
    );
    return () => abort.abort();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key stands for what is loaded
  }, [key, attempt, signIn]);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  const change = useCallback((next: (value: T) => T) => {
    setState((old) => (old.value === undefined ? old : { ...old, value: next(old.value) }));
  }, []);
  return { value: state.value, error: state.error, loading: state.loading, isCurrent: key !== undefined && state.key === key, reload, change };
}
