/** The points of an embedding, and what colours them: a column of cells, or a gene of which some cells have no value. */

import type { Domain } from '../api/hdf';
import { dimsOf, isSparse } from '../api/hdf';
import { numberType } from '../api/types';
import { readDefined } from '../api/defined';
import { readValues } from '../api/values';
import { CATEGORIES, type Colour, colourOf, rangeOf, type Range, UNDEFINED } from '../sparse/colours';
import { type AnnData, type Embedding, readColumn } from './anndata';
import type { Column } from './frame';

export interface Points {
  x: Float64Array;
  y: Float64Array;
}

export interface Colouring {
  /** The colour of each cell. */
  colour: (cell: number) => Colour;
  /** Names and colours of categories; none if the colours are a scale. */
  categories: [string, Colour][];
  range: Range | undefined;
  /** How many cells have no value. */
  undefinedCells: number;
}

/** JSON has null for what is not a number, which is no zero. */
function numberOf(value: unknown): number {
  return value === null || value === undefined ? NaN : Number(value);
}

/** Reads the first two dimensions of an embedding. */
export async function readPoints(domain: Domain, embedding: Embedding, count: number, signal: AbortSignal): Promise<Points> {
  const { dataset, field } = embedding;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  if (field === undefined) {
    const spans = [
      { start: 0, stop: count, step: 1 },
      { start: 0, stop: 2, step: 1 },
    ];
    const found = await readValues(domain, dataset, spans, signal);
    for (let at = 0; at < count; at += 1) {
      x[at] = numberOf(found[2 * at]);
      y[at] = numberOf(found[2 * at + 1]);
    }
    return { x, y };
  }
  const found = (await readValues(domain, dataset, [{ start: 0, stop: count, step: 1 }], signal, field)) as number[][][];
  found.forEach((one, at) => {
    x[at] = one[0]?.[0] ?? NaN;
    y[at] = one[0]?.[1] ?? NaN;
  });
  return { x, y };
}

export async function colourByColumn(domain: Domain, column: Column, signal: AbortSignal): Promise<Colouring> {
  const values = await readColumn(domain, column, signal);
  const isNumber = column.categories === undefined && typeof values[0] !== 'string' && !Array.isArray(values[0]);
  if (isNumber) return colourByNumbers(Float64Array.from(values as ArrayLike<number | null>, numberOf));
  const texts = Array.from(values, (value) => (value === null ? null : String(value)));
  const names = [...new Set(texts)].filter((text) => text !== null).sort();
  const colours = new Map(names.map((name, at) => [name, CATEGORIES[at % CATEGORIES.length] ?? UNDEFINED]));
  return {
    colour: (cell) => {
      const text = texts[cell];
      return (typeof text === 'string' ? colours.get(text) : undefined) ?? UNDEFINED;
    },
    categories: [...colours],
    range: undefined,
    undefinedCells: texts.filter((text) => text === null).length,
  };
}

/** Colours cells by a gene; of a sparse matrix, cells without an element are undefined and not zero. */
export async function colourByGene(domain: Domain, cells: AnnData, gene: number, signal: AbortSignal): Promise<Colouring> {
  const { matrix } = cells;
  if (matrix === undefined) throw new Error('The domain has no matrix of genes that can be read by column.');
  const count = dimsOf(matrix)[0] ?? 0;
  const values = new Float64Array(count);
  const defined = new Uint8Array(count);
  if (isSparse(matrix)) {
    const found = await readDefined(domain, matrix, `[:,${gene}]`, signal);
    for (let at = 0; at < found.values.length; at += 1) {
      const cell = found.places[0]?.[at] ?? 0;
      values[cell] = numberOf(found.values[at]);
      defined[cell] = 1;
    }
    return colourByNumbers(values, defined);
  }
  if (numberType(matrix.type ?? '') === undefined) throw new Error('The matrix has no numbers.');
  const spans = [
    { start: 0, stop: count, step: 1 },
    { start: gene, stop: gene + 1, step: 1 },
  ];
  return colourByNumbers(Float64Array.from((await readValues(domain, matrix, spans, signal)) as ArrayLike<number>, Number));
}

function colourByNumbers(values: Float64Array, defined?: Uint8Array): Colouring {
  const range = rangeOf(values, defined);
  const undefinedCells = defined === undefined ? 0 : defined.reduce((sum, one) => sum + (one === 0 ? 1 : 0), 0);
  const colour = (cell: number) => (defined !== undefined && !defined[cell] ? UNDEFINED : colourOf(values[cell] ?? NaN, range));
  return { colour, categories: [], range, undefinedCells };
}

/** Draws the points, undefined ones first, so that they hide no others. */
export function drawPoints(canvas: HTMLCanvasElement, points: Points, colouring: Colouring | undefined): void {
  const context = canvas.getContext('2d');
  if (context === null) return;
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  const [across, up] = [rangeOf(points.x), rangeOf(points.y)];
  if (across === undefined || up === undefined) return;
  const margin = 8;
  const radius = Math.min(4, Math.max(1, 90 / Math.sqrt(points.x.length)));
  const place = (value: number, { low, high }: Range, length: number) =>
    margin + ((value - low) / (high - low || 1)) * (length - 2 * margin);
  for (const isDefined of [false, true]) {
    for (let cell = 0; cell < points.x.length; cell += 1) {
      const colour = colouring?.colour(cell) ?? UNDEFINED;
      if ((colour !== UNDEFINED) !== isDefined) continue;
      context.fillStyle = `rgb(${colour[0]},${colour[1]},${colour[2]})`;
      context.beginPath();
      context.arc(place(points.x[cell] ?? NaN, across, width), height - place(points.y[cell] ?? NaN, up, height), radius, 0, 7);
      context.fill();
    }
  }
}
