/** Downloads made in the page: the answer of a request, or a selection as CSV or NPY. */

import { nameOf } from '../address';
import { send } from '../api/client';
import { type Domain, type HdfObject, type HdfType, isSparse, placesQuery } from '../api/hdf';
import { ARROW, countDefined, readDefined } from '../api/defined';
import { numberType } from '../api/types';
import { tiff } from './tiff';
import { filePath } from './snippets';
import { formatSelect, readBytes, readValues, sizeOf, type Span, spanLength } from '../api/values';
import { formatElement, formatExact } from '../shell/format';

/** The most elements of a selection that a page turns into a file. */
const MAX_ELEMENTS = 1 << 24;
/** The largest file that a page keeps in memory, to send credentials with its request. */
const MAX_FILE = 1 << 30;
/** About the characters of a part of a table. A browser's text has less than 2^29, which a table may pass. */
const PART = 1 << 20;

export type Format = 'csv' | 'npy' | 'arrow' | 'tiff';

/** Says in which formats a selection can be saved. */
export function formatsOf(object: HdfObject): Format[] {
  const isNumber = numberType(object.type ?? '') !== undefined;
  const isImage = isNumber && (object.shape?.dims ?? []).length >= 2;
  return ['csv', ...(isNumber ? (['npy'] as const) : []), ...(isImage ? (['tiff'] as const) : []), ...(isSparse(object) ? (['arrow'] as const) : [])];
}

/** Returns the name of a file of the domain: one that is opened as HDF5, whatever the domain is called. */
export function fileName(domain: Domain): string {
  const name = nameOf(domain.path);
  return /\.(h5|hdf5|h5ad|nxs|nc)$/i.test(name) ? name : `${name}.h5`;
}

export function save(parts: BlobPart[], name: string, media: string): void {
  const url = URL.createObjectURL(new Blob(parts, { type: media }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name.replace(/[/\\\u0000-\u001f]/g, '_') || 'download';
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Returns how many bytes the file of a domain has. */
export async function fileSize(domain: Domain, layout: string | undefined, signal: AbortSignal): Promise<number> {
  const answer = await send(filePath(domain), { bucket: domain.bucket, layout }, { accept: '*/*', method: 'HEAD', signal });
  return Number(answer.headers.get('Content-Length'));
}

/** Downloads a domain as a file, with the credentials of the page. */
export async function saveFile(domain: Domain, layout: string | undefined): Promise<void> {
  const answer = await send(filePath(domain), { bucket: domain.bucket, layout }, { accept: '*/*' });
  if (Number(answer.headers.get('Content-Length') ?? 0) > MAX_FILE) {
    await answer.body?.cancel();
    throw new Error('The file is too large for a page: use hsparse export, or curl with your name.');
  }
  save([await answer.blob()], fileName(domain), 'application/x-hdf5');
}

export async function saveSelection(domain: Domain, object: HdfObject, spans: Span[], name: string, format: Format): Promise<void> {
  if (format === 'arrow') {
    const query = { ...placesQuery(domain, object), select: formatSelect(spans), sparse: 1 };
    const answer = await send(`/datasets/${object.id}/value`, query, { accept: ARROW });
    return save([await answer.blob()], `${name}.arrows`, ARROW);
  }
  const isList = format === 'csv' && isSparse(object);
  const count = isList ? await countDefined(domain, object, formatSelect(spans)) : sizeOf(spans);
  if (count > MAX_ELEMENTS) throw new Error(`More than ${MAX_ELEMENTS.toLocaleString('en')} elements: select less, or use hsparse.open.`);
  if (format === 'npy') return save(npy(object, spans, await readBytes(domain, object, spans)), `${name}.npy`, 'application/octet-stream');
  if (format === 'tiff') return save(tiff(object, spans, await readBytes(domain, object, spans)), `${name}.tiff`, 'image/tiff');
  save(inParts(isList ? await sparseCells(domain, object, spans) : await denseCells(domain, object, spans)), `${name}.csv`, 'text/csv');
}

/** Returns the parts of a file of these texts. As blobs they take none of the memory that scripts have. */
function inParts(texts: Iterable<string>): Blob[] {
  const parts: Blob[] = [];
  let part = '';
  for (const text of texts) {
    part += text;
    if (part.length < PART) continue;
    parts.push(new Blob([part]));
    part = '';
  }
  return [...parts, new Blob([part])];
}

/** Returns a table with the places and values of the defined elements, cell by cell. */
async function sparseCells(domain: Domain, object: HdfObject, spans: Span[]): Promise<Iterable<string>> {
  const { places, values } = await readDefined(domain, object, formatSelect(spans));
  const isSingle = values instanceof Float32Array;
  const type = object.type ?? '';
  return (function* () {
    yield `${[...places.map((_, dim) => `dim_${dim},`), 'value'].join('')}\r\n`;
    for (let at = 0; at < values.length; at += 1) {
      yield `${places.map((column) => `${column[at]},`).join('')}${csvCell(values[at], type, isSingle)}\r\n`;
    }
  })();
}

/** Returns a table with all values, cell by cell: a line has the last dimension, of a dataset with only one an element. */
async function denseCells(domain: Domain, object: HdfObject, spans: Span[]): Promise<Iterable<string>> {
  const values = await readValues(domain, object, spans);
  const last = spans[spans.length - 1];
  const width = spans.length > 1 && last !== undefined ? Math.max(1, spanLength(last)) : 1;
  const isSingle = values instanceof Float32Array;
  const type = object.type ?? '';
  return (function* () {
    for (let at = 0; at < values.length; at += 1) yield csvCell(values[at], type, isSingle) + ((at + 1) % width === 0 ? '\r\n' : ',');
  })();
}

/** Texts that spreadsheets would take for formulas. */
const FORMULA = /^[=+\-@\t\r]/;

/** Returns a cell of CSV (RFC 4180); `isSingle` says that floats have 32 bits. Before a formula stands a `'`, so that it is a text. */
function csvCell(value: unknown, type: HdfType, isSingle: boolean): string {
  if (typeof value === 'number' || typeof value === 'bigint') return formatExact(value, isSingle);
  const bare = typeof value === 'object' ? formatElement(value, type) : String(value);
  const text = FORMULA.test(bare) && Number.isNaN(Number(bare)) ? `'${bare}` : bare;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** Returns a header of NPY, version 1.0, and the values behind it, little-endian. */
function npy(object: HdfObject, spans: Span[], values: ArrayBuffer): BlobPart[] {
  const type = numberType(object.type ?? '');
  if (type === undefined) throw new Error('Only numbers can be saved as NPY.');
  const shape = spans.map((span) => `${spanLength(span)},`).join(' ');
  const descr = `${type.size === 1 ? '|' : '<'}${type.kind}${type.size}`;
  const header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  const length = Math.ceil((11 + header.length) / 64) * 64 - 10;
  const bytes = new Uint8Array(10 + length).fill(0x20);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, length & 255, length >> 8]);
  bytes.set(new TextEncoder().encode(header), 10);
  bytes[9 + length] = 0x0a;
  return [bytes, values];
}
