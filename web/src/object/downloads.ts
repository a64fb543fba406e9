/** Downloads made in the page: the answer of a request, or a selection as CSV or NPY. */

import { send } from '../api/client';
import { type Domain, type HdfObject, isSparse } from '../api/hdf';
import { type NumberArray, numberType } from '../api/types';
import { tiff } from './tiff';
import { formatSelect, readDefined, readValues, sizeOf, type Span, spanLength } from '../api/values';

/** The most elements of a selection that a page turns into a file. */
const MAX_ELEMENTS = 1 << 24;
/** The largest file that a page keeps in memory, to send credentials with its request. */
const MAX_FILE = 1 << 30;

export type Format = 'csv' | 'npy' | 'arrow' | 'tiff';

/** Says in which formats a selection can be saved. */
export function formatsOf(object: HdfObject): Format[] {
  const isNumber = numberType(object.type ?? '') !== undefined;
  const isImage = isNumber && (object.shape?.dims ?? []).length >= 2;
  return ['csv', ...(isNumber ? (['npy'] as const) : []), ...(isImage ? (['tiff'] as const) : []), ...(isSparse(object) ? (['arrow'] as const) : [])];
}

export function save(parts: BlobPart[], name: string, media: string): void {
  const url = URL.createObjectURL(new Blob(parts, { type: media }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name.replace(/[/\\\u0000-\u001f]/g, '_') || 'download';
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Downloads a domain as a file, with the credentials of the page. */
export async function saveFile(domain: Domain, name: string, layout: string | undefined): Promise<void> {
  const path = `/files${domain.path.split('/').map(encodeURIComponent).join('/')}`;
  const answer = await send(path, { bucket: domain.bucket, layout }, { accept: '*/*' });
  if (Number(answer.headers.get('Content-Length') ?? 0) > MAX_FILE) {
    await answer.body?.cancel();
    throw new Error('The file is too large for a page: use hsparse export, or curl with your name.');
  }
  save([await answer.blob()], name, 'application/x-hdf5');
}

export async function saveSelection(domain: Domain, object: HdfObject, spans: Span[], name: string, format: Format): Promise<void> {
  if (format === 'arrow') {
    const query = { ...domain.query, select: formatSelect(spans), sparse: 1 };
    const answer = await send(`/datasets/${object.id}/value`, query, { accept: 'application/vnd.apache.arrow.stream' });
    return save([await answer.blob()], `${name}.arrows`, 'application/vnd.apache.arrow.stream');
  }
  if (format === 'csv' && isSparse(object)) {
    const { places, values } = await readDefined(domain, object, formatSelect(spans));
    const head = [...spans.map((_, dim) => `dim_${dim}`), 'value'];
    return save([csv([head, ...places.map((place, at) => [...place, values[at]])])], `${name}.csv`, 'text/csv');
  }
  if (sizeOf(spans) > MAX_ELEMENTS) throw new Error(`More than ${MAX_ELEMENTS.toLocaleString('en')} elements: select less, or use hsparse.open.`);
  const values = await readValues(domain, object, spans);
  if (format === 'npy') return save(npy(object, spans, values as ArrayBufferView), `${name}.npy`, 'application/octet-stream');
  if (format === 'tiff') return save(tiff(object, spans, values as NumberArray), `${name}.tiff`, 'image/tiff');
  const width = spans.length > 1 ? spanLength(spans[spans.length - 1] ?? { start: 0, stop: 1, step: 1 }) : 1;
  const rows: unknown[][] = [];
  for (let at = 0; at < values.length; at += Math.max(1, width)) rows.push(Array.from(values.slice(at, at + width) as ArrayLike<unknown>));
  save([csv(rows)], `${name}.csv`, 'text/csv');
}

/** Returns rows as CSV (RFC 4180). */
function csv(rows: unknown[][]): string {
  const cell = (value: unknown) => {
    const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(',')}\r\n`).join('');
}

/** Returns a header of NPY, version 1.0, and the values behind it. */
function npy(object: HdfObject, spans: Span[], values: ArrayBufferView): BlobPart[] {
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
  return [bytes, values as unknown as BlobPart];
}
