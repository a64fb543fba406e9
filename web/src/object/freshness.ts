/** What others change while a page is open: asked for when an object is opened, and when the page is looked at again. */

import { useEffect, useState } from 'react';
import { sendJson } from '../api/client';
import { collectionOf, type Domain, type HdfObject } from '../api/hdf';
import { useLoad } from '../api/load';

type Changed = Pick<HdfObject, 'shape' | 'lastModified'>;

/** Keeps the extent of a dataset as the server has it; `onChange` is given what has changed of it. */
export function useFreshExtent(domain: Domain, object: HdfObject | undefined, onChange: (changed: Changed) => void): void {
  const looks = useLooks();
  const id = object !== undefined && collectionOf(object) === 'datasets' ? object.id : undefined;
  const { value, isCurrent } = useLoad(id === undefined ? undefined : `${domain.path} ${id} ${looks}`, (signal) =>
    sendJson<HdfObject>(`/datasets/${id}/shape`, domain.query, { signal }),
  );
  useEffect(() => {
    // What is followed live is known by then.
    if (isCurrent && value !== undefined && (value.lastModified ?? 0) > (object?.lastModified ?? 0)) onChange({ shape: value.shape, lastModified: value.lastModified });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- each answer is used once
  }, [value, isCurrent]);
}

/** What is counted of a domain: when anything in it was changed, values too, and how many chunks are stored. */
export interface DomainCounts {
  lastModified: number;
  num_chunks: number;
}

/** Returns what is counted of a domain, if it is wanted and known. */
export function useDomainCounts(domain: Domain, isWanted: boolean): DomainCounts | undefined {
  const looks = useLooks();
  const { value } = useLoad(isWanted ? `${domain.path} ${domain.bucket} ${looks}` : undefined, (signal) =>
    sendJson<DomainCounts>('/', { ...domain.query, verbose: 1 }, { signal }),
  );
  return isWanted ? value : undefined;
}

/** A number that changes when somebody comes back to the page. */
function useLooks(): number {
  const [looks, setLooks] = useState(0);
  useEffect(() => {
    const onLook = () => {
      if (document.visibilityState === 'visible') setLooks((count) => count + 1);
    };
    document.addEventListener('visibilitychange', onLook);
    return () => document.removeEventListener('visibilitychange', onLook);
  }, []);
  return looks;
}
