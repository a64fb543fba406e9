/** AnnData in a domain: names of cells and genes, their columns, and embeddings, of groups and of older compounds. */

import { sendJson } from '../api/client';
import { attributeText, collectionOf, type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { onUser } from '../api/session';
import { type Column, frameAt } from './frame';
import { readKeys } from './frameValues';
import { classOf, memberMapping, numberType } from '../api/types';
import { extentOf, readValues } from '../api/values';

export interface AxisLabels {
  rows: Column | undefined;
  columns: Column | undefined;
}

export interface Embedding {
  name: string;
  dataset: HdfObject;
  field?: string | undefined;
}

export interface AnnData {
  cells: Column;
  columns: Column[];
  embeddings: Embedding[];
  genes: Column | undefined;
  /** The matrix of genes: cells by genes, each from 0 on. */
  matrix: HdfObject | undefined;
}

/** Says whether a group is an AnnData: by its encoding, or of before 0.7, which had none, by its tables of cells and genes at the root. */
export function isAnnData(domain: Domain, path: string): boolean {
  const encoding = attributeText(domain.resolve(path), 'encoding-type');
  if (encoding !== undefined || path !== '/') return encoding === 'anndata';
  return domain.resolve('/obs') !== undefined && domain.resolve('/var') !== undefined;
}

/** Returns what a domain has of AnnData; undefined without names of cells. */
export function findAnnData(domain: Domain): AnnData | undefined {
  const obs = frameAt(domain, '/obs');
  const cells = obs?.index;
  if (obs === undefined || cells === undefined) return undefined;
  const raw = domain.resolve('/raw/X') ?? domain.resolve('/raw.X');
  const matrix = raw ?? domain.resolve('/X');
  return {
    cells,
    columns: obs.columns,
    embeddings: embeddingsOf(domain),
    genes: indexOf(domain, ...(raw === undefined ? ['/var'] : RAW_GENES)),
    matrix: matrix !== undefined && collectionOf(matrix) === 'datasets' && matrix.shape?.lower === undefined ? matrix : undefined,
  };
}

/** Returns the names of a matrix's rows and columns, if it is one of AnnData's, whose places begin at 0. */
export function labelsOf(domain: Domain, path: string): AxisLabels | undefined {
  const isRaw = path === '/raw/X' || path === '/raw.X';
  if (!isRaw && path !== '/X' && !path.startsWith('/layers/')) return undefined;
  if (domain.resolve(path)?.shape?.lower !== undefined) return undefined;
  return { rows: indexOf(domain, '/obs'), columns: indexOf(domain, ...(isRaw ? RAW_GENES : ['/var'])) };
}

const RAW_GENES = ['/raw/var', '/raw.var'];

/** Returns the index of the first frame that is there. */
function indexOf(domain: Domain, ...paths: string[]): Column | undefined {
  return paths.map((path) => frameAt(domain, path)).find((frame) => frame !== undefined)?.index;
}

function embeddingsOf(domain: Domain): Embedding[] {
  const obsm = domain.resolve('/obsm');
  if (obsm === undefined) return [];
  const type = obsm.type;
  if (type !== undefined && typeof type !== 'string') {
    const wide = (type.fields ?? []).filter((field) => classOf(field.type) === 'H5T_ARRAY');
    return preferred(wide.map(({ name }) => ({ name, dataset: obsm, field: name })));
  }
  const found: Embedding[] = [];
  for (const [name, link] of Object.entries(obsm.links ?? {})) {
    const dataset = domain.target(link, '/obsm');
    if (dataset === undefined || numberType(dataset.type ?? '') === undefined || dataset.shape?.lower !== undefined) continue;
    if (dimsOf(dataset).length === 2 && (dimsOf(dataset)[1] ?? 0) >= 2) found.push({ name, dataset });
  }
  return preferred(found);
}

/** Sorts embeddings, those first that are made for looking at. */
function preferred(found: Embedding[]): Embedding[] {
  const order = (one: Embedding) => (/umap/i.test(one.name) ? 0 : /tsne/i.test(one.name) ? 1 : 2);
  return found.sort((a, b) => order(a) - order(b));
}

/** Reads a column: text or numbers, categories by their names, missing ones as null. */
export async function readColumn(domain: Domain, column: Column, signal: AbortSignal): Promise<ArrayLike<unknown>> {
  const { dataset, field, categories, mask } = column;
  if (mask !== undefined) return (await readKeys(domain, [column], { start: 0, stop: column.length }, signal))[0] ?? [];
  const found = await readValues(domain, dataset, extentOf(dataset), signal, field);
  const bare = field === undefined ? found : Array.from(found as unknown[], (one) => (Array.isArray(one) ? one[0] : one));
  const type = dataset.type ?? '';
  if (categories !== undefined) {
    const names = await readValues(domain, categories, extentOf(categories), signal);
    return Array.from(bare as ArrayLike<number>, (code) => names[Number(code)] ?? null);
  }
  if (typeof type !== 'string' && type.class === 'H5T_ENUM' && field === undefined) {
    const names = new Map(Object.entries(memberMapping(type)).map(([name, value]) => [value, name]));
    return Array.from(bare as ArrayLike<number>, (value) => names.get(Number(value)) ?? String(value));
  }
  return bare;
}

const BLOCK = 2000;
const blocks = new Map<string, Promise<string[]>>();
// What one user may read is not for the next one.
onUser(() => blocks.clear());

/** Returns the name of a place of an axis. Names are read in blocks, which are kept. */
export async function nameAt(domain: Domain, column: Column, place: number): Promise<string> {
  const first = Math.floor(place / BLOCK) * BLOCK;
  const key = `${column.dataset.id} ${column.field ?? ''} ${first}`;
  let block = blocks.get(key);
  if (block === undefined) {
    block = readNames(domain, column, first);
    blocks.set(key, block);
    block.catch(() => blocks.delete(key));
  }
  return (await block.catch(() => []))[place - first] ?? '';
}

/** Returns the names of places of an axis, by place. */
export async function namesAt(domain: Domain, column: Column, places: number[], signal: AbortSignal): Promise<Map<number, string>> {
  const points = [...new Set(places)].filter((place) => place < column.length);
  if (points.length === 0) return new Map();
  const query = { ...domain.query, fields: column.field };
  const options = { method: 'POST', body: { points }, signal };
  const { value } = await sendJson<{ value: unknown[] }>(`/datasets/${column.dataset.id}/value`, query, options);
  return new Map(points.map((place, at) => [place, nameOf(value[at])]));
}

/** A compound with one field is a list of one. */
function nameOf(value: unknown): string {
  return String(Array.isArray(value) ? value[0] : value);
}

async function readNames(domain: Domain, column: Column, first: number): Promise<string[]> {
  const select = `[${first}:${Math.min(column.length, first + BLOCK)}]`;
  const query = { ...domain.query, select, fields: column.field };
  const { value } = await sendJson<{ value: unknown[] }>(`/datasets/${column.dataset.id}/value`, query);
  return value.map(nameOf);
}
