/** Follows a dataset that grows: waits for another extent, and then has it shown. */

import { useEffect, useRef, useState } from 'react';
import { pause, RequestError, sendJson } from '../api/client';
import { type Domain, type HdfObject, isGrowing } from '../api/hdf';

/** Seconds that one request waits. */
const WAIT = 25;
/** Milliseconds from one change to the next, however fast the dataset grows, and to the next request after an error. */
const BETWEEN = 250;
const PAUSE = 2000;

interface Props {
  domain: Domain;
  object: HdfObject;
  live: boolean;
  onSwitch: (live: boolean) => void;
  /** Is given what has changed of the dataset. */
  onChange: (changed: Pick<HdfObject, 'shape' | 'lastModified'>) => void;
}

/** The bounds of a dataset as a request names those that it knows. */
function boundsOf({ shape }: Pick<HdfObject, 'shape'>): { expect: string; expect_lower: string | undefined } {
  return { expect: `[${(shape?.dims ?? []).join(',')}]`, expect_lower: shape?.lower && `[${shape.lower.join(',')}]` };
}

export function LiveSwitch({ domain, object, live, onSwitch, onChange }: Props) {
  const [error, setError] = useState<string>();
  const change = useRef(onChange);
  change.current = onChange;
  const { path, bucket } = domain;
  const first = boundsOf(object);
  useEffect(() => {
    if (!live) return undefined;
    const abort = new AbortController();
    const { signal } = abort;
    const follow = async () => {
      let bounds = first;
      while (!signal.aborted) {
        try {
          const query = { domain: path, bucket, wait: WAIT, ...bounds };
          const { shape, lastModified } = await sendJson<HdfObject>(`/datasets/${object.id}/shape`, query, { signal });
          setError(undefined);
          const next = boundsOf({ shape });
          if (next.expect === bounds.expect && next.expect_lower === bounds.expect_lower) continue;
          bounds = next;
          change.current({ shape, lastModified });
          await pause(BETWEEN, signal);
        } catch (failure) {
          if (signal.aborted) return;
          setError(failure instanceof Error ? failure.message : String(failure));
          const after = failure instanceof RequestError ? failure.retryAfter : undefined;
          await pause(after ?? PAUSE, signal).catch(() => undefined);
        }
      }
    };
    void follow();
    return () => abort.abort();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- it knows of later extents by itself
  }, [live, path, bucket, object.id]);
  if (!isGrowing(object)) return null;
  return (
    <label className="live">
      <input type="checkbox" checked={live} onChange={(event) => onSwitch(event.target.checked)} /> Live
      {error !== undefined && (
        <span role="status" className="away">
          {' '}
          {error}
        </span>
      )}
    </label>
  );
}
