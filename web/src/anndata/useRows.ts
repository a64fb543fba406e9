/** The rows of a frame that are shown, as what is asked for changes. */

import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import type { Column, Frame } from './frame';
import { type Filter, findRows, type Order } from './frameListing';
import { type Cell, type Part, readCells } from './frameValues';

/** How many rows a page has. */
export const PAGE = 100;
/** The most columns that are shown beside one another. */
export const WIDE = 100;

export interface Asked {
  /** The first row, and the first column. */
  first: number;
  left: number;
  order: Order | undefined;
  filter: Filter | undefined;
}

export interface ShownRows {
  part: Part;
  columns: Column[];
  /** By column, the index first if there is one. */
  cells: Cell[][];
}

export interface Found {
  /** The page, as places in the list of rows; and how many rows are in the list. */
  start: number;
  stop: number;
  count: number;
  /** What the list has, in words. */
  text: string;
  /** The last ones that were read; undefined until the list is known. */
  rows: ShownRows | undefined;
  error: unknown;
  retry: () => void;
  isLoading: boolean;
}

export function useRows(domain: Domain, frame: Frame, path: string, { first, left, order, filter }: Asked): Found {
  const columns = frame.columns.slice(left, left + WIDE);
  const read = frame.index === undefined ? columns : [frame.index, ...columns];
  const key = `${domain.path} ${path} ${read.map(({ dataset }) => dataset.id).join(' ')} ${frame.length}`;
  const isWhole = order === undefined && filter === undefined;
  const wanted = isWhole ? undefined : `${key} ${order?.column.name} ${order?.down} ${filter?.column.name} ${filter?.key}`;
  const listing = useLoad(wanted, (signal) => findRows(domain, frame, order, filter, signal));
  const isFound = isWhole || listing.isCurrent;
  const places = isWhole ? undefined : listing.value?.places;
  const count = isWhole ? frame.length : (places?.length ?? 0);
  const start = Math.min(first, Math.max(0, Math.ceil(count / PAGE) - 1) * PAGE);
  const stop = Math.min(count, start + PAGE);
  const part: Part = places === undefined ? { start, stop } : places.slice(start, stop);
  const rows = useLoad(isFound ? `${wanted ?? key} ${start}` : undefined, async (signal) => {
    return { part, columns, cells: await readCells(domain, read, part, signal) };
  });
  const error = (isWhole ? undefined : listing.error) ?? rows.error;
  return {
    ...{ start, stop, count, error },
    text: isWhole ? '' : (listing.value?.text ?? ''),
    rows: isFound ? rows.value : undefined,
    retry: isFound && listing.error === undefined ? rows.reload : listing.reload,
    isLoading: error === undefined && (!isFound || !rows.isCurrent),
  };
}
