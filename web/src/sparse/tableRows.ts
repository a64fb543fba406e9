/** The rows of a table of defined elements: read from the first places on, or by the server in the order of their values. */

import { send, sendJson } from '../api/client';
import { columnsOf, type DefinedElements, readDefined } from '../api/defined';
import { type Domain, type HdfObject, placesQuery } from '../api/hdf';
import { decodeNumbers, isBoolean, isDecodable, type NumberType, numberType } from '../api/types';
import { formatSelect, type Span } from '../api/values';
import { formatElement } from '../shell/format';
import { type Density, lengthOf, marginsOf, readDensity } from './density';

/** About the most elements that are read for a table. */
const MOST = 20_000;
/** Places of chunks, stored or not, in the first rows that are counted; each next request counts so many times as many rows. */
const CHUNKS = 1_000;
const MORE = 8;
/** The rows of a table. */
export const LISTED = 500;

/** What a table is sorted by: a dimension or, by its rank, the value. */
export interface Order {
  by: number;
  down: boolean;
}

export interface Rows extends DefinedElements {
  /** The selection that was read: what is asked for, or the first part of it. */
  select: string;
}

/** Reads the first elements of a selection: of as many places in the first dimension as have at most `MOST`. */
export async function readFirst(domain: Domain, object: HdfObject, spans: Span[], signal: AbortSignal): Promise<Rows> {
  const box = spans.map((span) => ({ ...span, step: 1 }));
  const first = box[0] ?? { start: 0, stop: 1, step: 1 };
  const stop = Math.min(first.stop, first.start + (box.length > 0 ? await rowsThatFit(domain, object, box, signal) : 1));
  const select = formatSelect(spans.map((span, dim) => (dim === 0 ? { ...span, stop } : span)));
  return { ...(await readDefined(domain, object, select, signal)), select };
}

/** Returns how many places of the first dimension have together about `MOST` elements, one at least. */
async function rowsThatFit(domain: Domain, object: HdfObject, box: Span[], signal: AbortSignal): Promise<number> {
  const [down, right] = box;
  if (down === undefined || right === undefined || box.length > 2) return Math.min(lengthOf(down), box.length === 1 ? 1_000_000 : 1);
  const [height, width] = object.layout?.dims ?? [];
  const across = Math.ceil(lengthOf(right) / (width ?? lengthOf(right))) || 1;
  let counted = (height ?? lengthOf(down)) * Math.max(1, Math.floor(CHUNKS / across));
  // Most of a large matrix is not looked at.
  for (;;) {
    const stop = Math.min(down.stop, down.start + counted);
    const frame = { box: [{ ...down, stop }, right], rows: 0, columns: 1 };
    const density = await readDensity(domain, object, frame, { approximate: true, withValues: false, pixels: [1024, 1], signal });
    const rows = firstRows(density);
    if (rows !== undefined || stop === down.stop) return Math.max(1, rows ?? lengthOf(down));
    counted *= MORE;
  }
}

/** Returns how many of the first rows have together about `MOST` elements; undefined if all have fewer. */
function firstRows(density: Density): number | undefined {
  let sum = 0;
  for (const [at, count] of marginsOf(density).rows.entries()) {
    sum += count;
    if (sum > MOST) return Math.max(1, at) * density.bin[0];
  }
  return undefined;
}

/** Says whether the server sorts elements by their values. */
export function isOrdered(object: HdfObject): boolean {
  const type = numberType(object.type ?? '');
  return type !== undefined && isDecodable(type) && !isBoolean(object.type ?? '') && fillOf(object, type) !== undefined;
}

/**
 * Reads the least or the greatest elements of a selection in their order. For the server what is undefined has the fill
 * value, so elements with that value are left out.
 */
export async function readOrdered(domain: Domain, object: HdfObject, spans: Span[], down: boolean, signal: AbortSignal): Promise<DefinedElements> {
  const type = numberType(object.type ?? '');
  const fill = type === undefined ? undefined : fillOf(object, type);
  if (type === undefined || fill === undefined) throw new Error('The elements have no order that the server can tell.');
  const path = `/datasets/${object.id}/value`;
  const query = fill === 'NaN' ? '_.is_valid()' : `_ != ${fill}`;
  const order = { select: formatSelect(spans), query, order_by: down ? '-_' : '_', Limit: LISTED, ignore_nan: 1 };
  const { index } = await sendJson<{ index: (number | number[])[] }>(path, { ...placesQuery(domain, object), ...order }, { signal });
  const places = columnsOf(index, spans.length);
  if (index.length === 0) return { places, values: [] };
  // Read again as bytes: JSON has no NaN, no infinity, and not all integers.
  const options = { method: 'POST', body: { points: index }, accept: 'application/octet-stream', signal };
  const answer = await send(path, placesQuery(domain, object), options);
  return { places, values: decodeNumbers(await answer.arrayBuffer(), type) };
}

/**
 * Returns the fill value as a query has it, `NaN` for that; undefined if it is not known here: infinity and base64 are
 * texts, and of an integer that is not safe JSON may have given another one.
 */
export function fillOf(object: HdfObject, type: NumberType): string | undefined {
  const fill = object.creationProperties?.fillValue ?? 0;
  if (fill === 'nan' && type.kind === 'f') return 'NaN';
  if (typeof fill !== 'number') return undefined;
  if (type.kind !== 'f') return Number.isSafeInteger(fill) ? String(fill) : undefined;
  return String(type.size === 4 ? Math.fround(fill) : fill);
}

/** Returns the numbers of the rows in order: by the place in a dimension, or by the value. */
export function sortedRows(rows: DefinedElements, { by, down }: Order): number[] {
  const sign = down ? -1 : 1;
  const keys: ArrayLike<unknown> = rows.places[by] ?? rows.values;
  const compare = (a: number, b: number) => compareKeys(keys[a], keys[b], sign);
  return Array.from({ length: keys.length }, (_, at) => at).sort(compare);
}

/** Compares numbers, of which NaN is last in both directions, or texts. */
function compareKeys(left: unknown, right: unknown, sign: number): number {
  if (typeof left === 'string' || typeof left === 'object') return sign * formatElement(left, '').localeCompare(formatElement(right, ''));
  const [a, b] = [left as number, right as number];
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  return a < b ? -sign : a > b ? sign : 0;
}
