/** A dialog that is shown as long as it is there; and one that does something, and says what the server says of it. */

import { type FormEvent, type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState } from 'react';
import { ErrorNotice } from './ErrorNotice';

interface Props {
  title: string;
  close: () => void;
  children: ReactNode;
}

export function Dialog({ title, close, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // Closed, it gives the focus back to what had it.
    return () => shown?.close();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={close}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface FormProps {
  /** What its button says. */
  name: string;
  /** Whether nothing brings back what the button does. */
  isDanger?: boolean;
  isReady?: boolean;
  /** The signal says that nobody waits any more. */
  submit: (signal: AbortSignal) => Promise<void>;
  close: () => void;
  children: ReactNode;
}

/** A form in a dialog: it closes when what it does is done, and stays with the error else. */
export function DialogForm({ name, isDanger, isReady = true, submit, close, children }: FormProps) {
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const abort = useRef<AbortController>();
  useEffect(() => () => abort.current?.abort(), []);
  const onSubmit = async (event: FormEvent) => {
    event.preventDefault();
    if (isBusy) return;
    const { signal } = (abort.current = new AbortController());
    setIsBusy(true);
    setError(undefined);
    try {
      await submit(signal);
      close();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void onSubmit(event)} autoComplete="off">
      {children}
      {error !== undefined && <ErrorNotice error={error} />}
      <div className="bar">
        <button className={isDanger ? 'danger' : undefined} disabled={isBusy || !isReady}>
          {name}
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
        <span role="status" className="quiet">
          {isBusy ? 'Asking the server…' : ''}
        </span>
      </div>
    </form>
  );
}
