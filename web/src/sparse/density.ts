/** Pictures of sparse datasets, as the server counts them: defined elements and their mean in each bin of a box. */

import { send } from '../api/client';
import { type Domain, type HdfObject, placesQuery } from '../api/hdf';
import { formatSelect, type Span } from '../api/values';

/** The part of a dataset in a picture: `box` has one place in all dimensions but `rows` and `columns`. */
export interface Frame {
  box: Span[];
  /** The dimension that goes down; undefined in a dataset of one dimension. */
  rows: number | undefined;
  /** The dimension that goes right. */
  columns: number;
}

export interface Density {
  frame: Frame;
  /** Places of a bin, down and right. */
  bin: [number, number];
  height: number;
  width: number;
  /** Elements by bin, row-major; of an approximate picture not whole numbers. */
  counts: Float32Array;
  /** The mean of each bin, NaN without an element; undefined of an approximate picture, and of what is no number. */
  values: Float32Array | undefined;
  approximate: boolean;
  /** Of a picture of chunks the last one that is counted; undefined if all are. */
  marker: string | undefined;
}

export function lengthOf(span: Span | undefined): number {
  return span === undefined ? 1 : span.stop - span.start;
}

/** Returns the frame's span of rows; a dataset of one dimension has one row. */
export function rowSpan(frame: Frame): Span {
  return (frame.rows === undefined ? undefined : frame.box[frame.rows]) ?? { start: 0, stop: 1, step: 1 };
}

export function columnSpan(frame: Frame): Span {
  return frame.box[frame.columns] ?? { start: 0, stop: 1, step: 1 };
}

/** Returns the frame with other spans. */
export function withSpans(frame: Frame, rows: Span, columns: Span): Frame {
  return { ...frame, box: frame.box.map((span, dim) => (dim === frame.rows ? rows : dim === frame.columns ? columns : span)) };
}

export interface DensityOptions {
  approximate: boolean;
  withValues: boolean;
  /** The most bins down and right. */
  pixels: [number, number];
  /** Of a picture of chunks: the most that are counted, and the last one that is counted already. */
  page?: { limit: number; marker: string | undefined };
  signal?: AbortSignal | undefined;
}

export async function readDensity(domain: Domain, dataset: HdfObject, frame: Frame, options: DensityOptions): Promise<Density> {
  const rows = lengthOf(rowSpan(frame));
  const columns = lengthOf(columnSpan(frame));
  const bin: [number, number] = [Math.max(1, Math.ceil(rows / options.pixels[0])), Math.max(1, Math.ceil(columns / options.pixels[1]))];
  const height = Math.ceil(rows / bin[0]);
  const width = Math.ceil(columns / bin[1]);
  const bins = frame.box.map((_, dim) => (dim === frame.rows ? bin[0] : dim === frame.columns ? bin[1] : 1));
  const withValues = options.withValues && !options.approximate;
  const query = {
    ...placesQuery(domain, dataset),
    select: formatSelect(frame.box),
    bin: `[${bins.join(',')}]`,
    approximate: options.approximate ? 1 : undefined,
    Limit: options.page?.limit,
    Marker: options.page?.marker,
    reduce: withValues ? 'mean' : undefined,
  };
  const answer = await send(`/datasets/${dataset.id}/density`, query, { signal: options.signal, accept: 'application/octet-stream' });
  const marker = answer.headers.get('X-Hdf-marker') ?? undefined;
  const body = await answer.arrayBuffer();
  const size = height * width;
  const turned = frame.rows !== undefined && frame.rows > frame.columns;
  const part = (first: number) => {
    const found = new Float32Array(body, 4 * first, size);
    return turned ? transposed(found, width, height) : found;
  };
  return { frame, bin, height, width, counts: part(0), values: withValues ? part(size) : undefined, approximate: options.approximate, marker };
}

/** Returns two pages of the chunks of a frame as one. */
export function joined(first: Density, next: Density): Density {
  return { ...next, counts: next.counts.map((count, at) => count + (first.counts[at] ?? 0)) };
}

/** Turns an array of `rows` rows of `columns` numbers. */
function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const found = new Float32Array(values.length);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      found[column * rows + row] = values[row * columns + column] ?? 0;
    }
  }
  return found;
}

export function totalOf(density: Density): number {
  return density.counts.reduce((sum, count) => sum + count, 0);
}

/** Returns the sums over the rows of bins, and over their columns. */
export function marginsOf(density: Density): { rows: Float64Array; columns: Float64Array } {
  const rows = new Float64Array(density.height);
  const columns = new Float64Array(density.width);
  for (let at = 0; at < density.counts.length; at += 1) {
    const count = density.counts[at] ?? 0;
    const row = Math.floor(at / density.width);
    rows[row] = (rows[row] ?? 0) + count;
    columns[at % density.width] = (columns[at % density.width] ?? 0) + count;
  }
  return { rows, columns };
}
