/** What a column of a frame has, in few numbers: the rows of each category, or the least and the greatest number. */

import { sendBinary, sendJson } from '../api/client';
import { type Domain, dimsOf } from '../api/hdf';
import { decodeNumbers, isBoolean, numberType } from '../api/types';
import { formatCount, formatElement } from '../shell/format';
import type { Column, Frame } from './frame';
import { type Cell, MISSING, readKeys, readNames, typeOf } from './frameValues';
import { MOST_CATEGORIES, MOST_READ } from './frameListing';

export interface Summary {
  /** What there is, and what is left out, in words. */
  text: string;
  /** Categories and how many rows have them, or the name of a number and what it is. */
  rows: { of: Cell; value: string }[];
}

const WHOLE = 'The rows are too many to be read for this.';

export async function summaryOf(domain: Domain, frame: Frame, column: Column, signal: AbortSignal): Promise<Summary> {
  const type = typeOf(column);
  if (column.categories !== undefined || isBoolean(type)) return countsOf(domain, frame, column, signal);
  if (numberType(type) !== undefined && (typeof type === 'string' || type.class !== 'H5T_ENUM')) return rangeOf(domain, frame, column, signal);
  if (frame.length > MOST_READ) return { text: WHOLE, rows: [] };
  const keys = await keysOf(domain, frame, column, signal);
  const texts = keys.filter((key) => key !== null).map((key) => formatElement(key, type));
  const rows = [
    { of: { text: 'values' }, value: formatCount(texts.length) },
    { of: { text: 'different values' }, value: formatCount(new Set(texts).size) },
    { of: MISSING, value: formatCount(keys.length - texts.length) },
  ];
  return { text: '', rows };
}

async function keysOf(domain: Domain, frame: Frame, column: Column, signal: AbortSignal): Promise<unknown[]> {
  return (await readKeys(domain, [column], { start: 0, stop: frame.length }, signal))[0] ?? [];
}

// --- categories and truth values -------------------------------------------------------------------------

async function countsOf(domain: Domain, frame: Frame, column: Column, signal: AbortSignal): Promise<Summary> {
  const counts = await rowsByKey(domain, frame, column, signal);
  if (counts === undefined) return { text: WHOLE, rows: [] };
  const { categories, isOrdered } = column;
  const total = categories === undefined ? 2 : (dimsOf(categories)[0] ?? 0);
  const shown = Array.from({ length: Math.min(total, MOST_CATEGORIES) }, (_, code) => code);
  const names = categories === undefined ? new Map([[0, 'false'], [1, 'true']]) : await readNames(domain, categories, shown, signal);
  const rows: Summary['rows'] = shown.map((code) => ({ of: { text: names.get(code) ?? '' }, value: formatCount(counts.get(code) ?? 0) }));
  const missing = counts.get(null) ?? 0;
  if (missing > 0) rows.push({ of: MISSING, value: formatCount(missing) });
  const unknown = [...counts].filter(([code]) => code !== null && code >= total).reduce((sum, [, count]) => sum + count, 0);
  if (unknown > 0) rows.push({ of: { text: 'codes without a category', kind: 'wrong' }, value: formatCount(unknown) });
  const many = total > shown.length ? `, of which the first ${formatCount(shown.length)} are listed` : '';
  return { text: categories === undefined ? '' : `${formatCount(total)} categories${isOrdered ? ', ordered from the least' : ''}${many}`, rows };
}

/** Returns how many rows have each code, null for none; undefined where nobody counts them. */
async function rowsByKey(domain: Domain, frame: Frame, column: Column, signal: AbortSignal): Promise<Map<number | null, number> | undefined> {
  const { dataset, field, mask } = column;
  const counts = new Map<number | null, number>();
  const add = (key: number | null, count: number) => counts.set(key, (counts.get(key) ?? 0) + count);
  if (frame.length <= MOST_READ) {
    for (const key of await keysOf(domain, frame, column, signal)) add(key === null ? null : Number(key), 1);
    return counts;
  }
  if (field !== undefined || mask !== undefined) return undefined;
  const query = { ...domain.query, op: 'count', axis: 0, by: dataset.id };
  const { groups, value } = await sendJson<Groups>(`/datasets/${dataset.id}/reduce`, query, { signal });
  groups.forEach((group, at) => add(Number(group) < 0 ? null : Number(group), value.count[at] ?? 0));
  const counted = value.count.reduce((sum, count) => sum + count, 0);
  if (counted < frame.length) add(null, frame.length - counted);
  return counts;
}

interface Groups {
  groups: unknown[];
  value: { count: number[] };
}

// --- numbers ---------------------------------------------------------------------------------------------

/** Returns the least and the greatest number, without NaN where the page reads the column. */
async function rangeOf(domain: Domain, frame: Frame, column: Column, signal: AbortSignal): Promise<Summary> {
  const type = typeOf(column);
  if (frame.length > MOST_READ) {
    const number = numberType(type);
    if (column.field !== undefined || column.mask !== undefined || number === undefined) return { text: WHOLE, rows: [] };
    const query = { ...domain.query, op: 'min,max' };
    const ends = decodeNumbers(await sendBinary(`/datasets/${column.dataset.id}/reduce`, query, { signal }), { ...number, bigEndian: false });
    const isNaN = Number.isNaN(ends[0]);
    return { text: isNaN ? 'NaN is among the numbers: which are the least and the greatest of the others is not known.' : '', rows: isNaN ? [] : ended(ends[0], ends[1], type) };
  }
  const keys = await keysOf(domain, frame, column, signal);
  const numbers = keys.filter((key) => key !== null && !Number.isNaN(key)) as (number | bigint)[];
  const least = numbers.reduce<number | bigint | undefined>((a, b) => (a === undefined || b < a ? b : a), undefined);
  const greatest = numbers.reduce<number | bigint | undefined>((a, b) => (a === undefined || b > a ? b : a), undefined);
  const rows = [{ of: { text: 'numbers' } as Cell, value: formatCount(numbers.length) }];
  if (least !== undefined) rows.push(...ended(least, greatest, type));
  const nans = keys.filter((key) => Number.isNaN(key)).length;
  if (nans > 0) rows.push({ of: { text: 'NaN' }, value: formatCount(nans) });
  const missing = keys.filter((key) => key === null).length;
  if (missing > 0) rows.push({ of: MISSING, value: formatCount(missing) });
  return { text: '', rows };
}

function ended(least: unknown, greatest: unknown, type: Parameters<typeof formatElement>[1]): Summary['rows'] {
  return [
    { of: { text: 'least' }, value: formatElement(least, type) },
    { of: { text: 'greatest' }, value: formatElement(greatest, type) },
  ];
}
