/** Which rows of a frame are listed, and in which order: found here, or in large frames by the server. */

import { sendJson } from '../api/client';
import { type Domain, dimsOf } from '../api/hdf';
import { isBoolean, numberType } from '../api/types';
import { formatCount, formatElement } from '../shell/format';
import type { Column, Frame } from './frame';
import { readKeys, typeOf } from './frameValues';

/** The most rows of which a whole column is read to sort or filter. */
export const MOST_READ = 100_000;
/** The most rows of a larger frame that the server lists: those with a value, and the first in an order. */
const MOST_FOUND = 10_000;
const MOST_ORDERED = 1000;
/** The most categories that can be chosen from. */
export const MOST_CATEGORIES = 1000;

export interface Order {
  column: Column;
  down: boolean;
}

export interface Filter {
  column: Column;
  /** A code, a truth value as a number, or null for rows without a value. */
  key: number | null;
  /** What it is called. */
  name: string;
}

export interface Listing {
  /** The rows in order. */
  places: number[];
  /** What they are, in words. */
  text: string;
}

/** Says whether a frame is so small that its columns are read whole, if they are asked about. */
function isSmall(frame: Frame): boolean {
  return frame.length <= MOST_READ;
}

/** Says whether the server can compare what a column has. */
function isCompared({ dataset, field, mask }: Column): boolean {
  return field === undefined && mask === undefined && numberType(dataset.type ?? '') !== undefined;
}

export function isSortable(frame: Frame, column: Column): boolean {
  return isSmall(frame) || (isCompared(column) && !isBoolean(typeOf(column)));
}

export function isFilterable(frame: Frame, column: Column): boolean {
  const hasChoice = column.categories === undefined ? isBoolean(typeOf(column)) : (dimsOf(column.categories)[0] ?? 0) <= MOST_CATEGORIES;
  return hasChoice && (isSmall(frame) || isCompared(column));
}

/** Finds the rows to list; there is an order or a filter. */
export async function findRows(domain: Domain, frame: Frame, order: Order | undefined, filter: Filter | undefined, signal: AbortSignal): Promise<Listing> {
  if (filter === undefined && order !== undefined && !isSmall(frame)) return readFirst(domain, frame, order, signal);
  const found = filter === undefined ? undefined : isSmall(frame) ? await chosen(domain, frame, filter, signal) : await asked(domain, filter, signal);
  const isCut = found !== undefined && found.length > MOST_FOUND && !isSmall(frame);
  const places = isCut ? found.slice(0, MOST_FOUND) : (found ?? Array.from({ length: frame.length }, (_, at) => at));
  const text = filter === undefined ? '' : `${isCut ? 'the first ' : ''}${formatCount(places.length)} ${places.length === 1 ? 'row' : 'rows'} with ${filter.column.name} ${filter.name}`;
  return { places: order === undefined ? places : await sorted(domain, frame, order, places, signal), text };
}

/** Returns the rows with a value, of a column that is read whole. */
async function chosen(domain: Domain, frame: Frame, { column, key }: Filter, signal: AbortSignal): Promise<number[]> {
  const [keys] = await readKeys(domain, [column], { start: 0, stop: frame.length }, signal);
  const places: number[] = [];
  (keys ?? []).forEach((one, at) => {
    if (key === null ? one === null : one !== null && Number(one) === key) places.push(at);
  });
  return places;
}

/** Returns the first rows with a value, which the server finds; one too many if there are more. */
async function asked(domain: Domain, { column, key }: Filter, signal: AbortSignal): Promise<number[]> {
  const query = key === null ? '_ < 0' : `_ == ${key}`;
  const wanted = { ...domain.query, query, Limit: MOST_FOUND + 1 };
  return (await sendJson<{ index: number[] }>(`/datasets/${column.dataset.id}/value`, wanted, { signal })).index;
}

/** Returns rows in order; those without a value last. Equal ones keep their order. */
async function sorted(domain: Domain, frame: Frame, { column, down }: Order, places: number[], signal: AbortSignal): Promise<number[]> {
  const part = places.length === frame.length ? { start: 0, stop: frame.length } : places;
  const [keys] = await readKeys(domain, [column], part, signal);
  const type = typeOf(column);
  const comparable = (keys ?? []).map((key) => (key === null || Number.isNaN(key) ? null : typeof key === 'object' ? formatElement(key, type) : key));
  const sign = down ? -1 : 1;
  const numbers = places.map((_, at) => at).sort((a, b) => compare(comparable[a], comparable[b], sign));
  return numbers.map((at) => places[at] ?? 0);
}

function compare(a: unknown, b: unknown, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return (a as number) < (b as number) ? -sign : (a as number) > (b as number) ? sign : 0;
}

/** Returns the least or greatest rows of a large frame, which the server finds. */
async function readFirst(domain: Domain, frame: Frame, { column, down }: Order, signal: AbortSignal): Promise<Listing> {
  const isFloat = numberType(column.dataset.type ?? '')?.kind === 'f';
  const query = column.categories !== undefined ? '_ >= 0' : isFloat ? '_.is_valid()' : '_ >= 0 | _ < 0';
  const wanted = { ...domain.query, query, order_by: down ? '-_' : '_', Limit: MOST_ORDERED, ignore_nan: 1 };
  const { index } = await sendJson<{ index: number[] }>(`/datasets/${column.dataset.id}/value`, wanted, { signal });
  const isAll = index.length < MOST_ORDERED;
  const without = column.categories !== undefined ? ', without missing ones' : isFloat ? ', without NaN' : '';
  const text = `the ${formatCount(index.length)} ${isAll ? 'rows with a value' : down ? 'greatest' : 'least'} of ${column.name} in ${formatCount(frame.length)} rows${without}`;
  return { places: index, text };
}
