/** What the caller may do in a domain or folder, as the server says: what may not be done is not offered. */

import { useEffect } from 'react';
import { sendJson } from './client';
import type { Domain } from './hdf';
import { useLoad } from './load';

export type Right = 'create' | 'read' | 'update' | 'delete' | 'readACL' | 'updateACL';
export type Rights = Record<Right, boolean>;

const NONE: Rights = { create: false, read: false, update: false, delete: false, readACL: false, updateACL: false };

/** The caller's rights; none until they are known. They are asked for again for each `version`. On a server that only reads, and of served files, there are those to read alone. */
export function useRights(place: Pick<Domain, 'path' | 'bucket'>, version = 0): Rights {
  const { path, bucket } = place;
  const { value, isCurrent, reload } = useLoad(`${bucket ?? ''} ${path}`, (signal) =>
    sendJson<{ rights: Rights }>('/explorer/rights', { domain: path, bucket }, { signal }),
  );
  useEffect(() => {
    if (version > 0) reload();
  }, [version, reload]);
  return isCurrent && value !== undefined ? value.rights : NONE;
}
