/** Snapshots of a domain: what it was, each read as a domain of its own. */

import { sendJson } from './client';
import type { Domain } from './hdf';

export interface Snapshot {
  snapshot: number;
  /** Seconds since 1970. */
  time: number;
  author: string;
  message: string;
}

/** Returns those of a domain, the newest first. */
export async function listSnapshots(domain: Domain, signal: AbortSignal): Promise<Snapshot[]> {
  const found = await sendJson<{ snapshots: Snapshot[] }>('/snapshots', domain.query, { signal });
  return found.snapshots.reverse();
}

/** The path of the domain whose snapshot another one is; undefined if it is none. */
export function headOf({ path, record }: Domain): string | undefined {
  return record.snapshot === undefined ? undefined : path.replace(/@\d+$/, '');
}
