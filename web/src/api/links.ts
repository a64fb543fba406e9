/** Where links lead that have no object in their own domain: to another domain, or to nothing. */

import type { Address } from '../address';
import type { Domain, HdfLink } from './hdf';

const PROTOCOL = 'hdf5:/';
/** How deep soft links may lead to soft links on the way to another domain. */
const MAX_DEPTH = 16;

/** Returns the address in another domain that a link in the group at path `group` leads to; undefined if it leads to none. */
export function addressOf(domain: Domain, link: HdfLink, group: string, depth = 0): Address | undefined {
  if (link.class === 'H5L_TYPE_EXTERNAL') {
    const file = link.h5domain ?? link.file ?? '';
    return { domain: externalDomain(file, domain), bucket: domain.bucket, path: joined('/', link.h5path ?? '') };
  }
  if (link.h5path === undefined || depth >= MAX_DEPTH) return undefined;
  return elsewhere(domain, joined(group, link.h5path), depth + 1);
}

/** Returns the address in another domain that a path leads to through a link on the way. */
export function elsewhere(domain: Domain, path: string, depth = 0): Address | undefined {
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  let group = domain.root;
  let at = '/';
  for (const [number, name] of names.entries()) {
    const link = group?.links?.[name];
    if (link === undefined) return undefined;
    group = domain.target(link, at);
    if (group === undefined) {
      const found = addressOf(domain, link, at, depth);
      return found === undefined ? undefined : { ...found, path: joined(found.path, names.slice(number + 1).join('/')) };
    }
    at = joined(at, name);
  }
  return undefined;
}

/** Says where a link leads that has no object here. */
export function linkText(domain: Domain, link: HdfLink, group: string): string {
  const address = addressOf(domain, link, group);
  if (address !== undefined) return `→ ${address.domain}${address.path === '/' ? '' : ` ${address.path}`}`;
  if (link.h5path !== undefined) return `→ ${link.h5path}, where there is nothing`;
  return link.class === 'H5L_TYPE_HARD' ? '→ an object that is gone' : `a link of the class ${link.class}`;
}

/** Returns the domain that a file is called by a link: as the server has it, a relative name is beside the linking domain. */
function externalDomain(file: string, linking: Domain): string {
  const { bucket } = linking;
  if (file.startsWith(PROTOCOL)) return joined('/', file.slice(PROTOCOL.length));
  if (bucket !== undefined && file.startsWith(`${bucket}/`)) return joined('/', file.slice(bucket.length));
  return joined(linking.path.replace(/[^/]*$/, ''), file);
}

/** Returns the path of `name`, which may be absolute, in the normal form, from `base` on. */
function joined(base: string, name: string): string {
  const parts: string[] = [];
  for (const part of (name.startsWith('/') ? name : `${base}/${name}`).split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
}
