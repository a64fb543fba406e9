/** Values of datasets: only what is selected, as binary where elements are numbers. */

import { type Query, sendBinary, sendJson } from './client';
import { canDecode, decodeElements } from './elements';
import { type Domain, dimsOf, type HdfObject, placesQuery } from './hdf';
import { decodeNumbers, isDecodable, littleEndian, type NumberArray, numberType } from './types';

/** One dimension of a selection; an index is one place. */
export interface Span {
  start: number;
  stop: number;
  step: number;
}

export function spanLength(span: Span): number {
  return Math.max(0, Math.ceil((span.stop - span.start) / span.step));
}

export function sizeOf(spans: Span[]): number {
  return spans.reduce((size, span) => size * spanLength(span), 1);
}

export function formatSelect(spans: Span[]): string {
  const parts = spans.map(({ start, stop, step }) => `${start}:${stop}${step === 1 ? '' : `:${step}`}`);
  return `[${parts.join(',')}]`;
}

/** Returns an extent as text: its lengths or, if it does not begin at 0, its places. */
export function extentText(extent: Span[]): string {
  return extent.every(({ start }) => start === 0) ? `[${extent.map(({ stop }) => stop).join(', ')}]` : formatSelect(extent);
}

/** Reads `[0:10,5,::2]` in an extent; undefined for anything else, and for lists. */
export function parseSelect(text: string | undefined, extent: Span[]): Span[] | undefined {
  if (text === undefined) return undefined;
  const items = text.replace(/\s/g, '').replace(/^\[/, '').replace(/\]$/, '').split(',');
  if (items.length !== extent.length) return undefined;
  const spans: Span[] = [];
  for (const [dim, item] of items.entries()) {
    const whole = extent[dim] ?? { start: 0, stop: 0 };
    const match = /^(-?\d+)?(?:(:)(-?\d+)?(?::(\d+))?)?$/.exec(item);
    if (match === null || (match[2] === undefined && match[1] === undefined)) return undefined;
    const start = Number(match[1] ?? whole.start);
    const stop = match[2] === undefined ? start + 1 : Number(match[3] ?? whole.stop);
    const step = Number(match[4] ?? 1);
    if (step < 1 || start > stop || start < whole.start || stop > whole.stop) return undefined;
    spans.push({ start, stop, step });
  }
  return spans;
}

/** Returns all places of a dataset, from its lower bounds on. */
export function extentOf(object: HdfObject): Span[] {
  const lower = object.shape?.lower ?? [];
  return dimsOf(object).map((length, dim) => ({ start: lower[dim] ?? 0, stop: (lower[dim] ?? 0) + length, step: 1 }));
}

/** Reads selected values, flat and in row-major order: numbers as a typed array, all else as a list. */
export async function readValues(
  domain: Domain,
  dataset: HdfObject,
  spans: Span[],
  signal?: AbortSignal,
  fields?: string,
): Promise<NumberArray | unknown[]> {
  const type = numberType(dataset.type ?? '');
  if (type !== undefined && isDecodable(type) && fields === undefined) {
    return decodeNumbers(await sendBinary(valuePath(dataset), valueQuery(domain, dataset, spans), { signal }), type);
  }
  if (fields === undefined && canDecode(dataset.type ?? '')) {
    const bytes = await sendBinary(valuePath(dataset), valueQuery(domain, dataset, spans), { signal });
    return decodeElements(bytes, dataset.type ?? '', sizeOf(spans));
  }
  const query = { ...valueQuery(domain, dataset, spans), fields, ignore_nan: 1 };
  const { value } = await sendJson<{ value: unknown }>(valuePath(dataset), query, { signal });
  return flatten(value, spans.length);
}

/** Reads the selected numbers as bytes, little-endian, as files have them. */
export async function readBytes(domain: Domain, dataset: HdfObject, spans: Span[]): Promise<ArrayBuffer> {
  const type = numberType(dataset.type ?? '');
  if (type === undefined) throw new Error('The dataset has no numbers.');
  return littleEndian(await sendBinary(valuePath(dataset), valueQuery(domain, dataset, spans)), type);
}

function valuePath(dataset: HdfObject): string {
  return `/datasets/${dataset.id}/value`;
}

function valueQuery(domain: Domain, dataset: HdfObject, spans: Span[]): Query {
  return { ...placesQuery(domain, dataset), select: spans.length > 0 ? formatSelect(spans) : undefined };
}

/** Flattens nested lists of `rank` levels; a scalar becomes a list of one. */
export function flatten(value: unknown, rank: number): unknown[] {
  if (rank === 0) return [value];
  let found = value as unknown[];
  for (let level = 1; level < rank; level += 1) found = (found as unknown[][]).flat();
  return found;
}
