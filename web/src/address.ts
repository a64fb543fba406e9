/** Addresses of what is shown: in the fragment of the URL, which browsers do not send to any server. */

import { useSyncExternalStore } from 'react';

export interface Address {
  /** A folder or a domain, absolute. */
  domain: string;
  bucket?: string | undefined;
  /** The path of an object in the domain. */
  path: string;
  /** What is shown of the object: the name of a tab. */
  view?: string | undefined;
  /** A selection, as in `?select=`. */
  select?: string | undefined;
}

export function parseAddress(fragment: string): Address {
  const values = new URLSearchParams(fragment.replace(/^#/, ''));
  return {
    domain: values.get('domain') ?? '/',
    path: values.get('path') ?? '/',
    bucket: values.get('bucket') ?? undefined,
    view: values.get('view') ?? undefined,
    select: values.get('select') ?? undefined,
  };
}

export function formatAddress(address: Address): string {
  const parts: [string, string | undefined][] = [
    ['domain', address.domain],
    ['bucket', address.bucket],
    ['path', address.path === '/' ? undefined : address.path],
    ['view', address.view],
    ['select', address.select],
  ];
  const given = parts.filter((part): part is [string, string] => part[1] !== undefined);
  return `#${given.map(([key, value]) => `${key}=${readable(value)}`).join('&')}`;
}

/** Percent-encodes what a fragment cannot have, and leaves slashes, colons, commas and brackets readable. */
function readable(text: string): string {
  return encodeURIComponent(text).replace(/%2F/g, '/').replace(/%3A/g, ':').replace(/%2C/g, ',').replace(/%5B/g, '[').replace(/%5D/g, ']');
}

const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  addEventListener('hashchange', listener);
  addEventListener('popstate', listener);
  return () => {
    listeners.delete(listener);
    removeEventListener('hashchange', listener);
    removeEventListener('popstate', listener);
  };
}

/** The address of the page, followed as it changes. */
export function useAddress(): Address {
  const fragment = useSyncExternalStore(subscribe, () => location.hash);
  return parseAddress(fragment);
}

export function goTo(address: Address): void {
  location.hash = formatAddress(address);
}

/** Changes the address without a step in the browser's history, as for each step of a zoom. */
export function replaceAddress(address: Address): void {
  history.replaceState(null, '', formatAddress(address));
  // The browser has no event for this.
  for (const listener of listeners) listener();
}

export function parentOf(path: string): string {
  return path.replace(/\/+[^/]*$/, '') || '/';
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1) || '/';
}
