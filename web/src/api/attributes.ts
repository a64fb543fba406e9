/** Attributes of an object: read to the last digit, made, changed and deleted. */

import { send, sendJson } from './client';
import { canDecode } from './elements';
import { collectionOf, type Domain, type HdfAttribute, type HdfObject } from './hdf';

type Attributes = Record<string, HdfAttribute>;

/** The most characters of a name in a path: servers and proxies refuse long ones. */
const MAX_IN_PATH = 2000;

function pathOf(object: HdfObject): string {
  return `/${collectionOf(object)}/${object.id}/attributes`;
}

/** Reads all attributes, in the order in which they were made. */
export async function readAttributes(domain: Domain, object: HdfObject): Promise<Attributes> {
  const query = { ...domain.query, IncludeData: 1, ignore_nan: 1, CreateOrder: 1 };
  return byName(await sendJson<Listed>(pathOf(object), query));
}

/** Reads attributes as bytes, of which nothing is lost as of numbers in JSON. */
export async function readExact(domain: Domain, object: HdfObject, names: string[], signal: AbortSignal): Promise<Attributes> {
  const query = { ...domain.query, IncludeData: 1, encoding: 'base64' };
  return byName(await sendJson<Listed>(pathOf(object), query, { method: 'POST', body: { attr_names: names }, signal }));
}

interface Listed {
  attributes: (HdfAttribute & { name: string })[];
}

function byName({ attributes }: Listed): Attributes {
  // Object.fromEntries takes every name, also __proto__.
  return Object.fromEntries(attributes.map(({ name, ...attribute }) => [name, attribute]));
}

/** Says whether JSON may have lost something of an attribute that can be read otherwise. */
export function isInexact({ type, shape, value }: HdfAttribute): boolean {
  return shape.class !== 'H5S_NULL' && canDecode(type) && isLossy(value);
}

/** Says whether a value has integers beyond 2^53, or null, which stands for NaN, for infinity and for what was never written. */
function isLossy(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(isLossy);
  if (typeof value === 'number') return Number.isInteger(value) && !Number.isSafeInteger(value);
  return value === null || value === undefined;
}

/** Replaces a value; type and extent stay. */
export async function putValue(domain: Domain, object: HdfObject, name: string, old: HdfAttribute, value: unknown): Promise<void> {
  // These no path can have: browsers take dots for steps, and halves of pairs have no bytes.
  const inPath = /^\.{1,2}$|\p{Cs}/u.test(name) ? undefined : encodeURIComponent(name);
  if (inPath === undefined || inPath.length > MAX_IN_PATH) return putAgain(domain, object, name, { ...old, value });
  await send(`${pathOf(object)}/${inPath}/value`, domain.query, { method: 'PUT', body: { value } });
}

/** Puts an attribute in the place of the one of its name. */
export async function putAgain(domain: Domain, object: HdfObject, name: string, attribute: HdfAttribute): Promise<void> {
  await put(domain, object, name, attribute, 1);
}

/** Makes an attribute; the server refuses one whose name is taken. */
export async function putNew(domain: Domain, object: HdfObject, name: string, attribute: HdfAttribute): Promise<void> {
  await put(domain, object, name, attribute, undefined);
}

async function put(domain: Domain, object: HdfObject, name: string, { type, shape, value }: HdfAttribute, replace: 1 | undefined): Promise<void> {
  const attribute = { type, shape: shape.class === 'H5S_SCALAR' ? undefined : (shape.dims ?? []), value };
  const body = { attributes: Object.fromEntries([[name, attribute]]) };
  await send(pathOf(object), { ...domain.query, replace }, { method: 'PUT', body });
}

export async function removeAttribute(domain: Domain, object: HdfObject, name: string): Promise<void> {
  const bytes = new TextEncoder().encode(name);
  const attr_names = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
  const separator = Array.from('\u0001\u0002/,;|', (one) => one).find((one) => !name.includes(one)) ?? '\n';
  await send(pathOf(object), { ...domain.query, attr_names, encoding: 'base64', separator }, { method: 'DELETE' });
}
