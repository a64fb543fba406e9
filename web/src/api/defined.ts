/** The defined elements of a sparse dataset: places and values, as columns. */

import { readArrow } from './arrow';
import { send, sendJson } from './client';
import { type Domain, type HdfObject, placesQuery } from './hdf';
import { decodeNumbers, isBoolean, type NumberArray, numberType } from './types';

export const ARROW = 'application/vnd.apache.arrow.stream';

export interface DefinedElements {
  /** The coordinates of all elements, by dimension. */
  places: ArrayLike<number>[];
  /** Numbers as a typed array, exact and with NaN; other elements as JSON has them. */
  values: NumberArray | unknown[];
}

/** Reads the defined elements of a selection. */
export async function readDefined(domain: Domain, dataset: HdfObject, select: string, signal?: AbortSignal): Promise<DefinedElements> {
  const query = { ...placesQuery(domain, dataset), select, sparse: 1 };
  const path = `/datasets/${dataset.id}/value`;
  const type = numberType(dataset.type ?? '');
  const rank = dataset.shape?.dims?.length ?? 0;
  if (type === undefined) {
    const found = await sendJson<Answer>(path, { ...query, ignore_nan: 1 }, { signal });
    return { places: columnsOf(found.selection.coordinates ?? [], rank), values: found.value };
  }
  const columns = readArrow(await (await send(path, query, { signal, accept: ARROW })).arrayBuffer());
  const numbers = (name: string) => {
    const column = columns.get(name);
    if (column === undefined) throw new Error(`The answer has no column ${name}.`);
    return decodeNumbers(column.bytes, column.type ?? type);
  };
  const places = Array.from({ length: rank }, (_, dim) => placesOf(numbers(`dim_${dim}`)));
  const values = numbers('value');
  return { places, values: isBoolean(dataset.type ?? '') ? Array.from<number | bigint, boolean>(values, Boolean) : values };
}

interface Answer {
  selection: { coordinates?: (number | number[])[] };
  value: unknown[];
}

/** Places are below 2^53, of which numbers have all. */
function placesOf(column: NumberArray): ArrayLike<number> {
  return column instanceof BigUint64Array || column instanceof BigInt64Array ? Float64Array.from(column, Number) : column;
}

/** Returns the coordinates by dimension of places as JSON has them. */
export function columnsOf(places: (number | number[])[], rank: number): number[][] {
  return Array.from({ length: rank }, (_, dim) => places.map((place) => (Array.isArray(place) ? (place[dim] ?? 0) : place)));
}

/** Returns how many elements of a selection are defined. */
export async function countDefined(domain: Domain, dataset: HdfObject, select: string): Promise<number> {
  const query = { ...placesQuery(domain, dataset), select, count_only: 1 };
  return (await sendJson<{ count: number }>(`/datasets/${dataset.id}/defined`, query)).count;
}
