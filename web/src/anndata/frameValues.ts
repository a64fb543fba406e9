/** Values of a frame's columns: of some rows all columns by one request, and the names of their categories by a second one. */

import { send } from '../api/client';
import { decodeElements } from '../api/elements';
import { type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { formatElement } from '../shell/format';
import type { Column } from './frame';

/** A part of the rows: a range, or places in any order. */
export type Part = { start: number; stop: number } | number[];

/** What a row has in a column. */
export interface Cell {
  text: string;
  /** Not a value: none is there, or a code for which there is no category. */
  kind?: 'missing' | 'wrong';
}

export const MISSING: Cell = { text: 'missing', kind: 'missing' };

interface Read {
  dataset: HdfObject;
  part: Part;
}

/** Returns how many rows a part has. */
export function countOf(part: Part): number {
  return Array.isArray(part) ? part.length : part.stop - part.start;
}

/** Reads columns' values or codes, null where there is none. */
export async function readKeys(domain: Domain, columns: Column[], part: Part, signal: AbortSignal): Promise<unknown[][]> {
  const values = columns.map(({ dataset }) => ({ dataset, part }));
  const masks = columns.map(({ dataset, mask }) => ({ dataset: mask ?? dataset, part }));
  const found = await readMany(domain, [...values, ...masks], signal);
  return columns.map((column, at) => {
    const own = valuesOf(column, found[at] ?? []);
    const mask = found[columns.length + at] ?? [];
    if (column.mask !== undefined) return own.map((value, row) => (Number(mask[row]) === 0 ? value : null));
    return column.categories === undefined ? own : own.map((code) => (Number(code) < 0 ? null : code));
  });
}

/** Returns the field of compounds that a column is, or the elements as they are. */
function valuesOf({ dataset, field }: Column, elements: unknown[]): unknown[] {
  if (field === undefined) return elements;
  const type = dataset.type ?? '';
  const at = typeof type === 'string' ? -1 : (type.fields ?? []).findIndex((one) => one.name === field);
  return elements.map((element) => (element as unknown[])[at]);
}

/** Reads cells of columns as they are shown, by column. */
export async function readCells(domain: Domain, columns: Column[], part: Part, signal: AbortSignal): Promise<Cell[][]> {
  const keys = await readKeys(domain, columns, part, signal);
  const wanted = columns.map(({ categories }, at) => (categories === undefined ? [] : codesIn(keys[at] ?? [], categories)));
  const reads = columns.map(({ dataset, categories }, at) => ({ dataset: categories ?? dataset, part: wanted[at] ?? [] }));
  const found = await readMany(domain, reads, signal);
  return columns.map((column, at) => {
    const names = column.categories === undefined ? undefined : namesOf(column.categories, wanted[at] ?? [], found[at] ?? []);
    return (keys[at] ?? []).map((key) => cellOf(column, key, names));
  });
}

/** Returns the codes that have a category. */
function codesIn(keys: unknown[], categories: HdfObject): number[] {
  const codes = new Set(keys.filter((key) => key !== null).map(Number));
  return [...codes].filter((code) => code < (dimsOf(categories)[0] ?? 0));
}

/** Reads names of categories, by code. */
export async function readNames(domain: Domain, categories: HdfObject, codes: number[], signal: AbortSignal): Promise<Map<number, string>> {
  const [found] = await readMany(domain, [{ dataset: categories, part: codes }], signal);
  return namesOf(categories, codes, found ?? []);
}

function namesOf(categories: HdfObject, codes: number[], elements: unknown[]): Map<number, string> {
  return new Map(codes.map((code, at) => [code, formatElement(elements[at], categories.type ?? '')]));
}

function cellOf(column: Column, key: unknown, names: Map<number, string> | undefined): Cell {
  if (key === null) return MISSING;
  if (column.categories === undefined) return { text: formatElement(key, typeOf(column)) };
  const name = names?.get(Number(key));
  return name === undefined ? { text: `code ${key}, without a category`, kind: 'wrong' } : { text: name };
}

/** Returns the type of a column's values or codes. */
export function typeOf({ dataset, field }: Column): NonNullable<HdfObject['type']> {
  const type = dataset.type ?? '';
  if (field === undefined || typeof type === 'string') return type;
  return (type.fields ?? []).find((one) => one.name === field)?.type ?? '';
}

/** Reads parts of datasets of one dimension by one request; elements are in the order of the places. */
async function readMany(domain: Domain, reads: Read[], signal: AbortSignal): Promise<unknown[][]> {
  const keys = reads.map(({ dataset, part }) => `${dataset.id} ${selectOf(part)}`);
  const wanted = new Map(keys.map((key, at) => [key, reads[at] as Read]).filter(([, read]) => countOf((read as Read).part) > 0) as [string, Read][]);
  if (wanted.size === 0) return reads.map(() => []);
  const body = { reads: [...wanted.values()].map(({ dataset, part }) => ({ ids: [dataset.id], select: selectOf(part) })) };
  const answer = await send('/datasets/values', domain.query, { method: 'POST', body, accept: 'application/octet-stream', signal });
  const parts = partsOf(await answer.arrayBuffer());
  const found = new Map([...wanted].map(([key, { dataset, part }], at) => [key, elementsOf(dataset, part, parts[at])]));
  return keys.map((key) => found.get(key) ?? []);
}

function selectOf(part: Part): string | number[][] {
  return Array.isArray(part) ? [ascending(part)] : `[${part.start}:${part.stop}]`;
}

/** The server wants each place once, in order. */
function ascending(places: number[]): number[] {
  return [...new Set(places)].sort((a, b) => a - b);
}

function elementsOf(dataset: HdfObject, part: Part, bytes: ArrayBuffer | undefined): unknown[] {
  if (bytes === undefined) throw new Error('The server sent fewer datasets than it was asked for: try again.');
  const type = dataset.type ?? '';
  if (!Array.isArray(part)) return decodeElements(bytes, type, countOf(part));
  const places = ascending(part);
  const found = new Map(decodeElements(bytes, type, places.length).map((element, at) => [places[at], element]));
  return part.map((place) => found.get(place));
}

/** Splits an answer about many datasets: each is blocks with their lengths in front, and an empty one at the end. */
function partsOf(answer: ArrayBuffer): ArrayBuffer[] {
  const view = new DataView(answer);
  const parts: ArrayBuffer[] = [];
  let at = 0;
  let blocks: Uint8Array[] = [];
  while (at < answer.byteLength) {
    const length = Number(view.getBigUint64(at, true));
    at += 8;
    if (length > 0) blocks.push(new Uint8Array(answer, at, length));
    else {
      parts.push(joined(blocks));
      blocks = [];
    }
    at += length;
  }
  return parts;
}

function joined(blocks: Uint8Array[]): ArrayBuffer {
  const all = new Uint8Array(blocks.reduce((size, block) => size + block.length, 0));
  let at = 0;
  for (const block of blocks) {
    all.set(block, at);
    at += block.length;
  }
  return all.buffer;
}
