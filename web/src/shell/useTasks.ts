/** What the page does in the background: uploads, copies and changes of many things, each with its progress and its end. */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Address } from '../address';
import { onUser } from '../api/session';

export interface Progress {
  /** What is being done, in words. */
  text: string;
  done?: number | undefined;
  total?: number | undefined;
  unit?: 'bytes' | 'names';
}

/** What a task does; what it returns is shown at its end. An abort of the signal stops it. */
export type Work = (report: (progress: Progress) => void, signal: AbortSignal) => Promise<Outcome>;

export interface Outcome {
  said: string;
  /** Where what was made is. */
  link?: Address;
}

export interface NewTask {
  title: string;
  work: Work;
  /** Looks at once whether it can be done at all. */
  check?: (signal: AbortSignal) => Promise<void>;
  /** Waits for the others that have this before it begins. */
  isQueued?: boolean;
  /** What else can be done after a stop or an error, unless it is one that it does not fit: its name, and what does it. */
  undo?: { name: string; work: () => Promise<Outcome>; fits: (error: unknown) => boolean } | undefined;
}

export interface Task extends NewTask {
  id: number;
  state: 'waiting' | 'running' | 'done' | 'failed' | 'stopped';
  progress: Progress;
  /** Bytes or names in a second since it began. */
  rate?: number | undefined;
  outcome?: Outcome;
  error?: unknown;
  abort: AbortController;
}

export interface Tasks {
  list: Task[];
  /** The number of tasks that have ended: what they changed is read again. */
  ended: number;
  run: (task: NewTask) => void;
  /** Does again what failed or was stopped. */
  retry: (task: Task) => void;
  stop: (task: Task) => void;
  undo: (task: Task) => void;
  /** Takes an ended one out of the list. */
  dismiss: (task: Task) => void;
}

let ids = 0;

export function useTasks(): Tasks {
  const [list, setList] = useState<Task[]>([]);
  const [ended, setEnded] = useState(0);
  const queue = useRef<Promise<unknown>>(Promise.resolve());
  const running = useRef(new Set<AbortController>());
  // Of a task that was tried again, what went before says nothing more.
  const change = useCallback(({ id, abort }: Task, changed: Partial<Task>) => {
    setList((old) => old.map((task) => (task.id === id && task.abort === abort ? { ...task, ...changed } : task)));
    if (changed.state === 'done' || changed.state === 'failed' || changed.state === 'stopped') setEnded((count) => count + 1);
  }, []);
  const begin = useCallback(
    async (task: Task) => {
      const { abort, work } = task;
      const start = async () => {
        abort.signal.throwIfAborted();
        change(task, { state: 'running' });
        return work(reporter((progress, rate) => change(task, { progress, rate })), abort.signal);
      };
      running.current.add(abort);
      try {
        await task.check?.(abort.signal);
        const turn = task.isQueued ? queue.current.then(start) : start();
        if (task.isQueued) queue.current = turn.catch(() => undefined);
        change(task, { state: 'done', outcome: await turn });
      } catch (error) {
        change(task, abort.signal.aborted ? { state: 'stopped', error: reasonOf(abort.signal) } : { state: 'failed', error });
      } finally {
        running.current.delete(abort);
      }
    },
    [change],
  );
  useEffect(
    () =>
      onUser(() => {
        // Nothing goes on in the name of somebody else.
        for (const abort of running.current) abort.abort(new Error('Somebody else signed in, or nobody is signed in any more.'));
      }),
    [],
  );
  return useMemo<Tasks>(() => {
    const again = (task: Task, changed: Partial<Task> = {}) => {
      const next: Task = { ...task, state: 'waiting', progress: { text: '' }, rate: undefined, error: undefined, abort: new AbortController(), ...changed };
      setList((old) => old.map((one) => (one.id === task.id ? next : one)));
      void begin(next);
    };
    return {
      list,
      ended,
      run: (task) => {
        ids += 1;
        const added: Task = { ...task, id: ids, state: 'waiting', progress: { text: '' }, abort: new AbortController() };
        setList((old) => [...old, added]);
        void begin(added);
      },
      retry: (task) => again(task),
      stop: (task) => {
        task.abort.abort();
        if (task.state === 'waiting') change(task, { state: 'stopped' });
      },
      undo: (task) => {
        if (task.undo !== undefined) again(task, { work: task.undo.work, check: undefined, isQueued: false, undo: undefined });
      },
      dismiss: (task) => setList((old) => old.filter(({ id }) => id !== task.id)),
    };
  }, [list, ended, begin, change]);
}

/** Why somebody's task was stopped, if not by its button. */
function reasonOf({ reason }: AbortSignal): unknown {
  return reason instanceof DOMException ? undefined : reason;
}

/** Milliseconds between two reports that the page is drawn for. */
const PERIOD = 200;

/** Adds the rate to what is reported, since the same was first reported; of the reports in a period the last is told. */
function reporter(tell: (progress: Progress, rate: number | undefined) => void): (progress: Progress) => void {
  let first: { text: string; done: number; time: number } | undefined;
  let told = -Infinity;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const report = (progress: Progress): void => {
    clearTimeout(timer);
    const { text, done = 0 } = progress;
    const time = performance.now();
    const isNew = first === undefined || first.text !== text || done < first.done;
    if (!isNew && time - told < PERIOD) {
      timer = setTimeout(() => report(progress), told + PERIOD - time);
      return;
    }
    told = time;
    if (first === undefined || isNew) first = { text, done, time };
    const seconds = (time - first.time) / 1000;
    tell(progress, seconds > 0.2 ? (done - first.done) / seconds : undefined);
  };
  return report;
}
