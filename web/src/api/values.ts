/** Values of datasets: only what is selected, as binary where elements are numbers. */

import { type Query, sendBinary, sendJson } from './client';
import { canDecode, decodeElements } from './elements';
import type { Domain, HdfObject } from './hdf';
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

/** Reads `[0:10,5,::2]` in an extent; undefined for anything else, and for lists. */
export function parseSelect(text: string | undefined, dims: number[]): Span[] | undefined {
  if (text === undefined) return undefined;
  const items = text.replace(/\s/g, '').replace(/^\[/, '').replace(/\]$/, '').split(',');
  if (items.length !== dims.length) return undefined;
  const spans: Span[] = [];
  for (const [dim, item] of items.entries()) {
    const length = dims[dim] ?? 0;
    const match = /^(\d*)(?:(:)(\d*)(?::(\d+))?)?$/.exec(item);
    if (match === null || (match[2] === undefined && match[1] === '')) return undefined;
    const start = Number(match[1] || 0);
    const stop = match[2] === undefined ? start + 1 : match[3] ? Number(match[3]) : length;
    const step = Number(match[4] ?? 1);
    if (step < 1 || start > stop || stop > length) return undefined;
    spans.push({ start, stop, step });
  }
  return spans;
}

export function wholeOf(dims: number[]): Span[] {
  return dims.map((length) => ({ start: 0, stop: length, step: 1 }));
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
    return decodeNumbers(await sendBinary(valuePath(dataset), valueQuery(domain, spans), { signal }), type);
  }
  if (fields === undefined && canDecode(dataset.type ?? '')) {
    const bytes = await sendBinary(valuePath(dataset), valueQuery(domain, spans), { signal });
    return decodeElements(bytes, dataset.type ?? '', sizeOf(spans));
  }
  const query = { ...valueQuery(domain, spans), fields, ignore_nan: 1 };
  const { value } = await sendJson<{ value: unknown }>(valuePath(dataset), query, { signal });
  return flatten(value, spans.length);
}

/** Reads the selected numbers as bytes, little-endian, as files have them. */
export async function readBytes(domain: Domain, dataset: HdfObject, spans: Span[]): Promise<ArrayBuffer> {
  const type = numberType(dataset.type ?? '');
  if (type === undefined) throw new Error('The dataset has no numbers.');
  return littleEndian(await sendBinary(valuePath(dataset), valueQuery(domain, spans)), type);
}

function valuePath(dataset: HdfObject): string {
  return `/datasets/${dataset.id}/value`;
}

function valueQuery(domain: Domain, spans: Span[]): Query {
  return { ...domain.query, select: spans.length > 0 ? formatSelect(spans) : undefined };
}

/** Flattens nested lists of `rank` levels; a scalar becomes a list of one. */
export function flatten(value: unknown, rank: number): unknown[] {
  if (rank === 0) return [value];
  let found = value as unknown[];
  for (let level = 1; level < rank; level += 1) found = (found as unknown[][]).flat();
  return found;
}
