/** Follows a dataset that grows: waits for another extent, and then loads what is shown again. */

import { useEffect, useState } from 'react';
import { RequestError, sendJson } from '../api/client';
import { type Domain, dimsOf, type HdfObject, type HdfShape, isGrowing } from '../api/hdf';

/** Seconds that one request waits, and milliseconds before the next one after an error. */
const WAIT = 25;
const PAUSE = 2000;

interface Props {
  domain: Domain;
  object: HdfObject;
  reload: () => void;
}

export function LiveSwitch({ domain, object, reload }: Props) {
  const [live, setLive] = useState(false);
  const [error, setError] = useState<string>();
  const extent = dimsOf(object).join(',');
  useEffect(() => {
    if (!live) return undefined;
    const abort = new AbortController();
    const follow = async () => {
      while (!abort.signal.aborted) {
        try {
          const query = { ...domain.query, wait: WAIT, expect: `[${extent}]` };
          const { shape } = await sendJson<{ shape: HdfShape }>(`/datasets/${object.id}/shape`, query, { signal: abort.signal });
          setError(undefined);
          if ((shape.dims ?? []).join(',') !== extent) return reload();
        } catch (failure) {
          if (abort.signal.aborted) return;
          setError(failure instanceof RequestError ? failure.message : String(failure));
          await new Promise((resolve) => setTimeout(resolve, PAUSE));
        }
      }
    };
    void follow();
    return () => abort.abort();
  }, [live, extent, domain, object.id, reload]);
  if (!isGrowing(object)) return null;
  return (
    <label className="live">
      <input type="checkbox" checked={live} onChange={(event) => setLive(event.target.checked)} /> Live
      {error !== undefined && (
        <span role="status" className="away">
          {' '}
          {error}
        </span>
      )}
    </label>
  );
}
